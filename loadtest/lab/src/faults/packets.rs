//! Packets that are lost, and others that arrive later than those sent after them, on the links of
//! one replica. TCP sends again what is lost, so what is said arrives late and complete.

use std::sync::Arc;
use std::time::Duration;

use loadtest_measure::error::Result;
use testbed::{PacketCounts, PacketFaults, PacketLink};
use tokio::time::{Instant, sleep};

use super::{FaultContext, Link, POLL_INTERVAL, WITNESS_TIMEOUT, no_witness, witness};
use crate::cluster::blocking;

/// Loss and reordering that slow TCP down without ending its connections.
const FAULTS: PacketFaults =
    PacketFaults { loss_percent: 5, reorder_percent: 20, max_delay: Duration::from_millis(10) };

/// The name on command lines and in reports.
pub(super) fn name(link: Link) -> &'static str {
    match link {
        Link::Redis => "lose-packets-redis",
        Link::Database => "lose-packets-database",
        Link::Replica => "lose-packets-replica",
        Link::Zookeeper => "lose-packets-zookeeper",
    }
}

/// What it does, in a sentence without a subject.
pub(super) fn description(link: Link) -> &'static str {
    match link {
        Link::Redis => "packets between a replica and Redis are lost or change their order",
        Link::Database => {
            "packets between a replica and the database are lost or change their order"
        }
        Link::Replica => "packets between HAProxy and a replica are lost or change their order",
        Link::Zookeeper => "packets between a replica and ZooKeeper are lost or change their order",
    }
}

/// Why no packet can be lost on this machine, if none can: a link needs a TUN device and a
/// namespace.
pub fn why_no_packet_loss() -> Option<String> {
    let checked = std::env::current_exe().map(|own| PacketLink::check(&own));
    checked.map_or_else(|error| Some(error.to_string()), |it| Some(it.err()?.to_string()))
}

/// Witness: packets lost and overtaken, and what the kernel sent again and received out of order.
pub(super) async fn inject(context: &FaultContext<'_>) -> Result<String> {
    let schedule = context.schedule;
    let links = context.deployment.packet_links(schedule.victim);
    if links.is_empty() {
        return Err(no_witness("there is no way on which it could happen".to_owned()));
    }
    let seen = lose_packets(links, schedule.lasts()).await;
    // Also after an error: the links are not left faulty.
    for_each_link(links, PacketLink::heal).await?;
    let (happened, text) = seen?;
    witness(happened, format!("{}: {text}", schedule.victim_name()))
}

/// Sets the faults, and waits that long and until their effect was seen.
async fn lose_packets(links: &[Arc<PacketLink>], lasts: Duration) -> Result<(bool, String)> {
    let counts_before = sum_counts(links).await?;
    for_each_link(links, |link| link.set_faults(FAULTS)).await?;
    sleep(lasts).await;
    let deadline = Instant::now() + WITNESS_TIMEOUT;
    loop {
        let (happened, text) = compare_counts(counts_before, sum_counts(links).await?);
        if happened || Instant::now() >= deadline {
            return Ok((happened, text));
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Whether packets were lost and overtaken, and the kernel noticed both; and the figures.
fn compare_counts(before: PacketCounts, now: PacketCounts) -> (bool, String) {
    let (lost, overtaken) = (now.lost - before.lost, now.overtaken - before.overtaken);
    let packets = now.passed - before.passed + lost;
    let again = now.retransmitted - before.retransmitted;
    let early = now.out_of_order - before.out_of_order;
    let text = format!(
        "{lost} of {packets} packets lost, {overtaken} overtaken by later ones; the kernel sent \
         {again} segments again and received {early} out of order"
    );
    (lost > 0 && overtaken > 0 && again > 0 && early > 0, text)
}

/// Calls each of them, also after one that fails; the first error.
async fn for_each_link(
    links: &[Arc<PacketLink>],
    call: impl Fn(&PacketLink) -> testbed::Result<()> + Send + 'static,
) -> Result<()> {
    let links = links.to_vec();
    blocking(move || {
        let results: Vec<_> = links.iter().map(|link| call(link)).collect();
        results.into_iter().collect()
    })
    .await
}

async fn sum_counts(links: &[Arc<PacketLink>]) -> Result<PacketCounts> {
    let links = links.to_vec();
    blocking(move || {
        links.iter().try_fold(PacketCounts::default(), |total, link| Ok(total + link.counts()?))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_names_what_happened_since_and_needs_loss_order_and_the_kernel() {
        let before = PacketCounts { passed: 100, lost: 1, ..PacketCounts::default() };
        let (overtaken, retransmitted, out_of_order) = (30, 9, 8);
        let now = PacketCounts { passed: 290, lost: 11, overtaken, retransmitted, out_of_order };
        let (happened, text) = compare_counts(before, now);
        assert!(happened);
        assert!(text.starts_with("10 of 200 packets lost, 30 overtaken by later ones;"), "{text}");
        let kernel = "the kernel sent 9 segments again and received 8 out of order";
        assert!(text.ends_with(kernel), "{text}");
        let nothing_lost = PacketCounts { lost: 1, ..now };
        let in_order = PacketCounts { overtaken: 0, ..now };
        let none_again = PacketCounts { retransmitted: 0, ..now };
        let none_early = PacketCounts { out_of_order: 0, ..now };
        for counts in [nothing_lost, in_order, none_again, none_early] {
            assert!(!compare_counts(before, counts).0, "{counts:?}");
        }
    }
}
