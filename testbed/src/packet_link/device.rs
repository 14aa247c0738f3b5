//! The TUN device, and what happens to its packets.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tun_rs::{DeviceBuilder, SyncDevice};

use super::{PacketCounts, PacketFaults, is_readable};

/// The address of the namespace. It and its neighbour are reserved for documentation.
pub(super) const NAMESPACE_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// What is sent to this address comes back from it, to [`NAMESPACE_ADDRESS`].
pub(super) const PEER_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// What makes a TUN device.
const TUN: &str = "/dev/net/tun";
const PREFIX: u8 = 24;
/// Bytes of a packet. Small, so that most messages are several packets, whose order can change.
const MTU: u16 = 256;
/// Where the addresses are in an IPv4 packet.
const SOURCE: usize = 12;
const DESTINATION: usize = 16;
const PAYLOAD: usize = 20;

/// What happens to packets and what has happened.
pub(super) struct LinkState {
    seed: u64,
    packets: Mutex<PacketState>,
}

struct PacketState {
    faults: PacketFaults,
    counts: PacketCounts,
    /// Begins again with each change of the faults: earlier packets do not change the choice.
    random: fastrand::Rng,
}

/// What happens to one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketFate {
    Passed,
    Lost,
    /// Passed after this time.
    HeldBack(Duration),
}

/// A packet that is held back.
struct HeldPacket {
    due: Instant,
    number: u64,
    bytes: Vec<u8>,
}

impl LinkState {
    /// No faults; the seed chooses the packets of later ones.
    pub(super) fn new(seed: u64) -> Self {
        let (faults, counts) = (PacketFaults::default(), PacketCounts::default());
        let random = fastrand::Rng::with_seed(seed);
        Self { seed, packets: Mutex::new(PacketState { faults, counts, random }) }
    }

    pub(super) fn set_faults(&self, faults: PacketFaults) {
        let mut packets = self.lock();
        packets.faults = faults;
        packets.random = fastrand::Rng::with_seed(self.seed);
    }

    /// The counts of the device; the kernel's own are 0.
    pub(super) fn counts(&self) -> PacketCounts {
        self.lock().counts
    }

    fn lock(&self) -> MutexGuard<'_, PacketState> {
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PacketState {
    /// Draws what happens to the next packet.
    fn choose_fate(&mut self) -> PacketFate {
        let Self { faults, random, .. } = self;
        if random.u8(..100) < faults.loss_percent {
            PacketFate::Lost
        } else if random.u8(..100) < faults.reorder_percent {
            PacketFate::HeldBack(faults.max_delay.mul_f64(random.f64()))
        } else {
            PacketFate::Passed
        }
    }
}

/// A device of this namespace, which is up.
pub(super) fn open() -> io::Result<SyncDevice> {
    // The builder would make a missing file.
    File::open(TUN)?;
    DeviceBuilder::new().ipv4(NAMESPACE_ADDRESS, PREFIX, None).mtu(MTU).build_sync()
}

/// Sends each packet back as if its destination had sent it to its source, or loses it. It returns
/// only if the device fails.
pub(super) fn pass_packets(device: &SyncDevice, state: &LinkState) -> io::Error {
    let mut held: Vec<HeldPacket> = Vec::new();
    let (mut number, mut newest_passed, mut buffer) = (0, 0, [0; MTU as usize]);
    let mut pass = |number: u64, packet: &[u8], counts: &mut PacketCounts| {
        counts.passed += 1;
        counts.overtaken += u64::from(number < newest_passed);
        newest_passed = newest_passed.max(number);
        device.send(packet).map(drop)
    };
    let mut pass_next = || {
        let next_due = held.iter().map(|packet| packet.due).min();
        if is_readable(device, next_due)? {
            let length = device.recv(&mut buffer)?;
            let packet = &mut buffer[..length];
            if packet.len() >= PAYLOAD && packet[0] >> 4 == 4 {
                number += 1;
                swap_addresses(packet);
                let mut packets = state.lock();
                match packets.choose_fate() {
                    PacketFate::Lost => packets.counts.lost += 1,
                    PacketFate::HeldBack(delay) => {
                        let due = Instant::now() + delay;
                        held.push(HeldPacket { due, number, bytes: packet.to_vec() });
                    }
                    PacketFate::Passed => pass(number, packet, &mut packets.counts)?,
                }
            }
        }
        let now = Instant::now();
        for packet in held.extract_if(.., |packet| packet.due <= now) {
            pass(packet.number, &packet.bytes, &mut state.lock().counts)?;
        }
        Ok(())
    };
    loop {
        if let Err(error) = pass_next() {
            return error;
        }
    }
}

/// Checksums stay right: they are sums.
fn swap_addresses(packet: &mut [u8]) {
    let (front, destination) = packet.split_at_mut(DESTINATION);
    front[SOURCE..].swap_with_slice(&mut destination[..PAYLOAD - DESTINATION]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_alone_chooses_the_packets_that_a_fault_happens_to() {
        let max_delay = Duration::from_millis(10);
        let faults = PacketFaults { loss_percent: 20, reorder_percent: 20, max_delay };
        let choose = |state: &LinkState, count: usize| {
            (0..count).map(|_| state.lock().choose_fate()).collect::<Vec<_>>()
        };
        let state = LinkState::new(1);
        assert_eq!(choose(&state, 7), [PacketFate::Passed; 7]);
        state.set_faults(faults);
        let chosen = choose(&state, 50);
        assert!(chosen.contains(&PacketFate::Lost) && chosen.contains(&PacketFate::Passed));
        assert!(chosen.iter().any(|fate| matches!(fate, PacketFate::HeldBack(_))), "{chosen:?}");
        state.set_faults(faults);
        assert_eq!(choose(&state, 50), chosen);
        let other = LinkState::new(2);
        other.set_faults(faults);
        assert_ne!(choose(&other, 50), chosen);
    }
}
