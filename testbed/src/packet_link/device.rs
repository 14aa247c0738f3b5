//! The TUN device, and what happens to its packets.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tun_rs::{DeviceBuilder, SyncDevice};

use super::{PacketCounts, PacketFaults};

/// The address of the namespace. It and its neighbour are reserved for documentation.
pub(super) const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// What is sent to this address comes back from it, to [`HERE`].
pub(super) const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const PREFIX: u8 = 24;
/// Bytes of a packet. Small, so that most messages are several packets, whose order can change.
const MTU: u16 = 256;
/// Where the addresses are in an IPv4 packet.
const SOURCE: usize = 12;
const DESTINATION: usize = 16;
const PAYLOAD: usize = 20;

/// What is wanted and what has happened.
#[derive(Default)]
pub(super) struct LinkState(Mutex<(PacketFaults, PacketCounts)>);

/// A packet that is held back.
struct HeldPacket {
    due: Instant,
    number: u64,
    bytes: Vec<u8>,
}

impl LinkState {
    pub(super) fn set_faults(&self, faults: PacketFaults) {
        self.lock().0 = faults;
    }

    /// The counts of the device; the kernel's own are 0.
    pub(super) fn counts(&self) -> PacketCounts {
        self.lock().1
    }

    fn lock(&self) -> MutexGuard<'_, (PacketFaults, PacketCounts)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device of this namespace, which is up.
pub(super) fn open() -> io::Result<SyncDevice> {
    DeviceBuilder::new().ipv4(HERE, PREFIX, None).mtu(MTU).build_sync()
}

/// Sends each packet back as if its destination had sent it to its source, or loses it; the seed
/// decides. It returns only if the device fails.
pub(super) fn pass_packets(device: &SyncDevice, state: &LinkState, seed: u64) -> io::Error {
    let mut random = fastrand::Rng::with_seed(seed);
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
                let (faults, counts) = &mut *state.lock();
                if random.u8(..100) < faults.loss_percent {
                    counts.lost += 1;
                } else if random.u8(..100) < faults.reorder_percent {
                    let due = Instant::now() + faults.max_delay.mul_f64(random.f64());
                    held.push(HeldPacket { due, number, bytes: packet.to_vec() });
                } else {
                    pass(number, packet, counts)?;
                }
            }
        }
        let now = Instant::now();
        for packet in held.extract_if(.., |packet| packet.due <= now) {
            pass(packet.number, &packet.bytes, &mut state.lock().1)?;
        }
        Ok(())
    };
    loop {
        if let Err(error) = pass_next() {
            return error;
        }
    }
}

/// Waits for a packet, until then at most.
fn is_readable(device: &SyncDevice, until: Option<Instant>) -> io::Result<bool> {
    // Whole milliseconds, and not before.
    let left = |until: Instant| until.saturating_duration_since(Instant::now());
    let wait = until.map(|until| left(until) + Duration::from_millis(1));
    let wait = wait.and_then(|wait| PollTimeout::try_from(wait).ok()).unwrap_or(PollTimeout::NONE);
    Ok(poll(&mut [PollFd::new(std::os::fd::AsFd::as_fd(device), PollFlags::POLLIN)], wait)? > 0)
}

/// Checksums stay right: they are sums.
fn swap_addresses(packet: &mut [u8]) {
    let (front, destination) = packet.split_at_mut(DESTINATION);
    front[SOURCE..].swap_with_slice(&mut destination[..PAYLOAD - DESTINATION]);
}
