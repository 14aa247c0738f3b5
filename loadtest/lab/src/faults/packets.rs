//! Packets that are lost, and others that arrive later than those sent after them, on the links of
//! one replica. TCP sends again what is lost, so what is said arrives late and complete.

use std::sync::Arc;
use std::time::Duration;

use loadtest_measure::error::Result;
use testbed::{PacketCounts, PacketFaults, PacketLink};
use tokio::time::{Instant, sleep};

use super::{FaultContext, Link, POLL_INTERVAL, WITNESS_TIMEOUT, no_witness, witness};
use crate::cluster::blocking;

/// A bad link, on which TCP still gets on.
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

/// Witness: packets lost and overtaken, and what the kernel had to send again.
pub(super) async fn inject(context: &FaultContext<'_>) -> Result<String> {
    let schedule = context.schedule;
    let links = context.deployment.packet_links(schedule.victim);
    if links.is_empty() {
        return Err(no_witness("there is no way on which it could happen".to_owned()));
    }
    let before = total(links).await?;
    set_faults(links, FAULTS).await?;
    sleep(schedule.lasts()).await;
    let deadline = Instant::now() + WITNESS_TIMEOUT;
    let (happened, text) = loop {
        let (happened, text) = seen(before, total(links).await?);
        if happened || Instant::now() >= deadline {
            break (happened, text);
        }
        sleep(POLL_INTERVAL).await;
    };
    set_faults(links, PacketFaults::default()).await?;
    witness(happened, format!("{}: {text}", schedule.victim_name()))
}

/// Whether packets were lost and overtaken, and the kernel noticed; and the figures.
fn seen(before: PacketCounts, now: PacketCounts) -> (bool, String) {
    let (lost, overtaken) = (now.lost - before.lost, now.overtaken - before.overtaken);
    let packets = now.passed - before.passed + lost;
    let again = now.retransmitted - before.retransmitted;
    let text = format!(
        "{lost} of {packets} packets lost, {overtaken} overtaken by later ones; the kernel sent \
         {again} segments again"
    );
    (lost > 0 && overtaken > 0 && again > 0, text)
}

async fn set_faults(links: &[Arc<PacketLink>], faults: PacketFaults) -> Result<()> {
    let links = links.to_vec();
    blocking(move || links.iter().try_for_each(|link| link.set_faults(faults))).await
}

/// What has happened on all of them.
async fn total(links: &[Arc<PacketLink>]) -> Result<PacketCounts> {
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
        let now = PacketCounts { passed: 290, lost: 11, overtaken: 30, retransmitted: 9, ..before };
        let (happened, text) = seen(before, now);
        assert!(happened);
        assert!(text.starts_with("10 of 200 packets lost, 30 overtaken by later ones;"), "{text}");
        assert!(text.ends_with("the kernel sent 9 segments again"), "{text}");
        let nothing_lost = PacketCounts { lost: 1, ..now };
        let in_order = PacketCounts { overtaken: 0, ..now };
        let not_noticed = PacketCounts { retransmitted: 0, ..now };
        for counts in [nothing_lost, in_order, not_noticed] {
            assert!(!seen(before, counts).0, "{counts:?}");
        }
    }
}
