//! The commands that repeat a run, or one cell of it.

use crate::lab::lock::Lock;
use crate::lab::place::{Load, Place};
use crate::lab::predict::{Guards, Scope};

/// The command that compares these, each named once, under this load.
pub fn comparison(places: &[Place], load: &Load) -> String {
    let mut flags = vec![
        ("--locks", each(places, |place| place.lock, Lock::name)),
        ("--scopes", each(places, |place| place.scope, Scope::name)),
        ("--guards", each(places, |place| place.guards, Guards::name)),
        ("--replicas", each(places, |place| place.replicas, |count| count.to_string())),
        ("--users", load.users.to_string()),
        ("--stock", load.stock.to_string()),
        ("--connections", load.connections.to_string()),
        ("--requests-per-user", load.requests_per_user.to_string()),
    ];
    if load.work_ms > 0 {
        flags.push(("--work-ms", load.work_ms.to_string()));
    }
    if let Some(plant) = load.plant {
        flags.push(("--plant", plant.name().to_owned()));
    }
    let words = flags.into_iter().map(|(flag, value)| format!("{flag} {value}"));
    std::iter::once("loadtest compare".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// The values of one axis, in the order in which they come, each once.
fn each<T: PartialEq + Copy, N: AsRef<str>>(
    places: &[Place],
    axis: impl Fn(&Place) -> T,
    name: impl Fn(T) -> N,
) -> String {
    let mut values = Vec::new();
    for value in places.iter().map(axis) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values.into_iter().map(|value| name(value).as_ref().to_owned()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::place::Plant;

    #[test]
    fn the_command_names_every_choice_once() {
        let load = Load {
            users: 700,
            stock: 100,
            connections: 96,
            requests_per_user: 3,
            work_ms: 5,
            plant: Some(Plant::LyingAudit),
        };
        let place = |lock, replicas| {
            let (scope, guards) = (Scope::User, Guards::Off);
            Place { lock, scope, guards, replicas }
        };
        let places = [place(Lock::Local, 3), place(Lock::Redisson, 3), place(Lock::Local, 1)];
        assert_eq!(
            comparison(&places, &load),
            "loadtest compare --locks local,redisson --scopes user --guards off --replicas 3,1 \
             --users 700 --stock 100 --connections 96 --requests-per-user 3 --work-ms 5 --plant \
             lying-audit"
        );
    }
}
