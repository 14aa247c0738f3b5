//! Free ports.
//!
//! Ports are drawn from below the range that the kernel gives to outgoing connections. A server
//! that is down for a restart must not find its port taken by another program's client. Between the
//! look and the server's own bind another process can still take it; the start of a server is then
//! tried again.

use std::collections::VecDeque;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// Below this live well-known services, and those that people start by hand.
const MIN_PORT: u16 = 12_000;
/// Fewer ports than this below the kernel's range, and the kernel chooses.
const MIN_PORTS_BELOW_KERNEL_RANGE: u16 = 1_000;
/// Ports tried before the kernel chooses.
const TRIES: u32 = 200;

/// Ports of the last draws, which are not drawn again: two listeners of one HAProxy would share a
/// port, and each connection would meet one of them.
const MAX_RECENT: usize = 512;
static RECENT: Mutex<VecDeque<u16>> = Mutex::new(VecDeque::new());

/// A loopback address with a port that has no listener at the moment, and is none of the last 512.
pub(crate) fn free_address() -> Result<SocketAddr> {
    draw_another(&mut RECENT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// One that is none of these, which it joins.
fn draw_another(recent: &mut VecDeque<u16>) -> Result<SocketAddr> {
    loop {
        let address = draw()?;
        if !recent.contains(&address.port()) {
            if recent.len() == MAX_RECENT {
                recent.pop_front();
            }
            recent.push_back(address.port());
            return Ok(address);
        }
    }
}

fn draw() -> Result<SocketAddr> {
    let highest = lowest_of_the_kernel();
    if highest.saturating_sub(MIN_PORT) >= MIN_PORTS_BELOW_KERNEL_RANGE {
        for _ in 0..TRIES {
            let port = MIN_PORT + random(highest - MIN_PORT);
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                return listener.local_addr().map_err(Error::io("read a port"));
            }
        }
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(Error::io("find a free port on 127.0.0.1"))
}

/// The first port of the kernel's own range.
fn lowest_of_the_kernel() -> u16 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// A number below `bound`, different in each call and process: the hasher's keys are random.
fn random(bound: u16) -> u16 {
    let hash = RandomState::new().hash_one(0);
    u16::try_from(hash % u64::from(bound)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_port_is_not_drawn_again_among_the_next_512() {
        // Of its own: other tests draw ports meanwhile.
        let (mut recent, mut last) = (VecDeque::new(), VecDeque::new());
        for _ in 0..4000 {
            last.push_back(draw_another(&mut recent).expect("a port").port());
            if last.len() > MAX_RECENT {
                last.pop_front();
            }
            let distinct: HashSet<&u16> = last.iter().collect();
            assert_eq!(distinct.len(), last.len());
        }
    }
}
