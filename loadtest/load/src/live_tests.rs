use super::*;

/// A load of users over one or more connections; times in milliseconds.
struct Scene {
    tally: Tally,
}

impl Scene {
    fn new(connections: usize) -> Self {
        Self { tally: Tally::new(4, connections) }
    }

    fn moment(&self, at: u64) -> Instant {
        self.tally.zero + Duration::from_millis(at)
    }

    fn start(&mut self, user: u32, at: u64) {
        let now = self.moment(at);
        self.tally.start(user, now);
    }

    fn end(&mut self, user: u32, outcome: Outcome, from: u64, until: u64) {
        let status = (outcome != Outcome::Unknown).then_some(201);
        let reading = RequestResult { outcome, order: None, status, code: None };
        let (sent, ended) = (self.moment(from), self.moment(until));
        let replica = Some(if user % 2 == 1 { "r2" } else { "r1" });
        let reading = &reading;
        self.tally.end(&CompletedRequest { user, reading, replica, intended: sent, sent, ended });
    }

    fn figures(&self) -> Figures {
        self.tally.figures(Duration::from_secs(2), Cost::default())
    }
}

#[test]
fn figures_count_time_and_share_what_happened() {
    let mut scene = Scene::new(1);
    scene.start(0, 0);
    scene.start(0, 0);
    scene.end(0, Outcome::Bought, 0, 10);
    scene.start(1, 10);
    scene.end(0, Outcome::AlreadyOrdered, 0, 20);
    scene.start(2, 20);
    scene.end(1, Outcome::Bought, 10, 500);
    scene.end(2, Outcome::Unknown, 20, 2000);
    let figures = scene.figures();
    assert_eq!((figures.requests, figures.users), (4, 3));
    assert_eq!(figures.count(Outcome::Bought), 2);
    assert!((figures.orders_per_s - 4.0).abs() < 1e-9, "2 in half a second");
    assert!((figures.unknown_share() - 0.25).abs() < 1e-9);
    assert_eq!(figures.replicas["r1"].answers, 3);
    assert!((figures.replicas["r2"].share - 0.25).abs() < 1e-9);
    assert_eq!(figures.codes["201"], 3);
    assert!((figures.all.max_ms - 1980.0).abs() < 2.0, "{:?}", figures.all);
}

#[test]
fn latency_counts_from_the_intended_moment_and_is_reported_from_the_sending_as_well() {
    let mut scene = Scene::new(1);
    scene.start(0, 900);
    let (intended, sent, ended) = (scene.moment(0), scene.moment(900), scene.moment(1000));
    let reading =
        RequestResult { outcome: Outcome::Bought, order: None, status: Some(201), code: None };
    let seen =
        CompletedRequest { user: 0, reading: &reading, replica: None, intended, sent, ended };
    scene.tally.end(&seen);
    let figures = scene.figures();
    assert!((figures.all.p50_ms - 1000.0).abs() < 1.0, "{:?}", figures.all);
    assert!((figures.outcomes[&Outcome::Bought].p50_ms - 1000.0).abs() < 1.0);
    assert!((figures.from_sending.p50_ms - 100.0).abs() < 1.0, "{:?}", figures.from_sending);
    let curve = &figures.curves[&Outcome::Bought];
    assert!(curve.iter().all(|point| (point.ms - 1000.0).abs() < 1.0), "{curve:?}");
    assert_eq!(figures.curves.len(), 1, "what never came has no curve");
}

#[test]
fn decisive_answers_count_only_if_requested_since_a_given_moment() {
    let mut scene = Scene::new(1);
    scene.end(0, Outcome::Bought, 0, 10);
    scene.end(0, Outcome::Unknown, 0, 10);
    scene.end(1, Outcome::Refused, 0, 10);
    assert_eq!(scene.tally.decided, 1, "one has decided something");
    let healed = scene.moment(100);
    scene.tally.count_from(healed);
    scene.end(0, Outcome::SoldOut, 99, 150);
    assert_eq!(scene.tally.decided, 0, "who was held up until then tells nothing of what is next");
    scene.end(0, Outcome::SoldOut, 100, 150);
    scene.end(1, Outcome::AlreadyOrdered, 120, 150);
    assert_eq!(scene.tally.decided, 2);
}

#[test]
fn simultaneous_requests_are_those_that_share_a_moment() {
    let mut scene = Scene::new(1);
    scene.start(0, 0);
    scene.start(0, 9);
    scene.end(0, Outcome::Bought, 0, 10);
    scene.end(0, Outcome::SoldOut, 9, 11);
    assert_eq!(scene.figures().simultaneous_min, 2);
    scene.start(1, 0);
    scene.end(1, Outcome::Bought, 0, 10);
    scene.start(1, 10);
    scene.end(1, Outcome::SoldOut, 10, 11);
    assert_eq!(scene.figures().simultaneous_min, 1);
}

#[test]
fn requests_in_flight_are_averaged_over_the_time_the_load_was_full() {
    // Two connections, always busy from 0 to 40 ms; what the last two do is not full load.
    let mut scene = Scene::new(2);
    for from in [0, 10, 20, 30] {
        scene.start(0, from);
        scene.start(1, from);
        scene.end(0, Outcome::Bought, from, from + 10);
        scene.end(1, Outcome::Bought, from, from + 10);
    }
    let figures = scene.figures();
    assert!((figures.in_flight_mean - 2.0).abs() < 1e-9, "{}", figures.in_flight_mean);
    assert_eq!(figures.in_flight_peak, 2);
}

#[test]
fn names_beyond_the_bound_share_the_last_place() {
    let mut known = Vec::new();
    for number in 0..500 {
        count(&mut known, |name| *name == number, || number);
        count(&mut known, |name| *name == 0, || 0);
    }
    assert_eq!(known.len(), MAX_NAMES);
    assert_eq!(known[0], (0, 501));
    assert_eq!(known.iter().map(|(_, times)| times).sum::<u64>(), 1000, "none is lost");
}
