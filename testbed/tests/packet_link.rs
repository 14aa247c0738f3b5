//! Packets that are lost and change their order between a client and its server. Where a machine
//! lets this user make no such link, the tests say why and end.

mod support;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use support::{STAND_IN, await_that};
use testbed::{Bed, PacketCounts, PacketFaults, PacketLink};

const LIMIT: Duration = Duration::from_secs(20);
const FAULTS: PacketFaults =
    PacketFaults { loss_percent: 5, reorder_percent: 20, max_delay: Duration::from_millis(10) };

/// Whether this machine can; said on stderr if not.
fn is_possible() -> bool {
    let checked = PacketLink::check(Path::new(STAND_IN));
    checked.inspect_err(|error| eprintln!("not tested here: {error}")).is_ok()
}

/// A link to a server that returns what it receives.
fn link_to_echo(bed: &Bed, seed: u64) -> PacketLink {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || io::copy(&mut &client, &mut &client));
        }
    });
    bed.packet_link(Path::new(STAND_IN), server, seed).expect("a link")
}

/// Sends that many bytes that hardly repeat themselves, and compares what comes back.
fn send_and_compare(link: &PacketLink, count: usize) {
    let mut random = fastrand::Rng::with_seed(7);
    let sent: Vec<u8> = (0..count).map(|_| random.u8(..)).collect();
    let client = TcpStream::connect(link.addr()).expect("a connection");
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    let received = thread::scope(|scope| {
        scope.spawn(|| (&client).write_all(&sent).expect("sent"));
        let mut received = vec![0; count];
        (&client).read_exact(&mut received).expect("all comes back");
        received
    });
    assert!(received == sent, "what comes back is another");
}

#[test]
fn data_is_whole_although_packets_are_lost_and_overtaken_until_the_link_is_healed() {
    if !is_possible() {
        return;
    }
    let bed = Bed::start().expect("a bed");
    let link = link_to_echo(&bed, 1);
    send_and_compare(&link, 60_000);
    let sound = link.counts().expect("counts");
    assert!(sound.passed > 2 * 60_000 / 256, "{sound:?}");
    assert_eq!((sound.lost, sound.overtaken), (0, 0), "{sound:?}");

    link.set_faults(FAULTS).expect("faults");
    send_and_compare(&link, 60_000);
    let faulty = link.counts().expect("counts");
    let PacketCounts { lost, overtaken, retransmitted, out_of_order, .. } = faulty;
    assert!(lost > 5 && overtaken > 20, "{faulty:?}");
    // What the kernel itself has seen of it.
    assert!(retransmitted > sound.retransmitted, "{faulty:?}");
    assert!(out_of_order > sound.out_of_order, "{faulty:?}");

    link.heal().expect("healed");
    let lost = link.counts().expect("counts").lost;
    send_and_compare(&link, 60_000);
    let healed = link.counts().expect("counts");
    assert_eq!(healed.lost, lost, "{healed:?}");
    assert!(healed.passed > faulty.passed, "{healed:?}");
}

#[test]
fn a_connection_stays_open_while_packets_are_lost_on_it() {
    if !is_possible() {
        return;
    }
    let bed = Bed::start().expect("a bed");
    let link = link_to_echo(&bed, 2);
    let mut client = TcpStream::connect(link.addr()).expect("a connection");
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    for turn in 0..4_u8 {
        let faults = if turn % 2 == 1 { FAULTS } else { PacketFaults::default() };
        link.set_faults(faults).expect("faults");
        for number in 0..40_u8 {
            client.write_all(&[turn, number]).expect("sent");
            let mut answer = [0; 2];
            client.read_exact(&mut answer).expect("an answer");
            assert_eq!(answer, [turn, number]);
        }
    }
    let counts = link.counts().expect("counts");
    assert!(counts.lost > 0 && counts.retransmitted > 0, "{counts:?}");
}

#[test]
fn a_server_that_is_not_there_ends_the_connection_of_its_client() {
    if !is_possible() {
        return;
    }
    let bed = Bed::start().expect("a bed");
    let unused = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    let link = bed.packet_link(Path::new(STAND_IN), unused, 3).expect("a link");
    let mut client = TcpStream::connect(link.addr()).expect("a connection");
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    assert_eq!(client.read(&mut [0]).expect("an end"), 0);
}

#[test]
fn the_machines_network_stays_as_it_is_and_the_namespace_ends_with_the_link() {
    if !is_possible() {
        return;
    }
    let devices = |pid: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, _)| name.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let bed = Bed::start().expect("a bed");
    let before = devices("self");
    let link = link_to_echo(&bed, 4);
    let pid = link.pid().to_string();
    let of_link = namespace(&pid).expect("a namespace");
    assert_ne!(Some(&of_link), namespace("self").as_ref());
    assert!(devices(&pid).iter().any(|name| name.starts_with("tun")), "{:?}", devices(&pid));
    assert_eq!(devices("self"), before);
    let mut client = TcpStream::connect(link.addr()).expect("a connection");
    client.set_read_timeout(Some(LIMIT)).expect("a limit");

    drop(link);
    let ended = client.read(&mut [0]).map_err(|error| error.kind());
    assert!(matches!(ended, Ok(0) | Err(io::ErrorKind::ConnectionReset)), "{ended:?}");
    await_that("end of the namespace", LIMIT, || {
        let processes = fs::read_dir("/proc").expect("processes").flatten();
        let mut names = processes.map(|process| process.file_name().to_string_lossy().into_owned());
        !names.any(|pid| namespace(&pid).as_ref() == Some(&of_link))
    });
    assert_eq!(devices("self"), before);
}

#[test]
fn a_program_without_such_a_process_and_a_system_that_refuses_are_errors_that_say_so() {
    let error = PacketLink::check(Path::new("/bin/false")).expect_err("it is no such program");
    assert!(error.to_string().contains("cannot lose packets"), "{error}");
    if !is_possible() {
        return;
    }
    let bed = Bed::start().expect("a bed");
    let server = "127.0.0.1:1".parse().expect("an address");
    let error = bed.packet_link(Path::new("/bin/false"), server, 5).expect_err("no link");
    assert!(error.to_string().contains("packet-link"), "{error}");
}
