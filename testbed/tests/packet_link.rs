//! Packets that are lost and change their order between a client and its server. Where a machine
//! lets this user make no such link, the tests say why and end.

mod support;

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{STAND_IN, await_that};
use testbed::{Bed, PacketCounts, PacketFaults, PacketLink};

/// The arguments of `unshare` for a network namespace of an ordinary user.
const UNSHARE: [&str; 4] = ["--user", "--map-root-user", "--net", "true"];
const LIMIT: Duration = Duration::from_secs(20);
const FAULTS: PacketFaults =
    PacketFaults { loss_percent: 5, reorder_percent: 20, max_delay: Duration::from_millis(10) };

/// Whether this machine can lose packets. A machine that allows what is needed must.
fn is_possible() -> bool {
    let Err(error) = PacketLink::check(Path::new(STAND_IN)) else { return true };
    let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let namespace = Command::new("unshare").args(UNSHARE).stderr(Stdio::null()).status();
    let is_allowed = device.is_ok() && namespace.is_ok_and(|status| status.success());
    assert!(!is_allowed, "this machine allows TUN devices and namespaces, but: {error}");
    // Past what the harness keeps of a test that is green.
    writeln!(io::stderr(), "not tested here: {error}").expect("written");
    false
}

/// A server that returns what it receives.
fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || io::copy(&mut &client, &mut &client));
        }
    });
    server
}

/// A link to such a server.
fn link_to_echo(bed: &Bed, seed: u64) -> PacketLink {
    bed.packet_link(Path::new(STAND_IN), echo_server(), seed).expect("a link")
}

/// A program that writes nothing and does not end by itself.
fn silent_program(folder: &Path) -> PathBuf {
    let path = folder.join("silent");
    fs::write(&path, "#!/bin/sh\nexec sleep 300\n").expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("executable");
    path
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
    assert!(error.to_string().contains("cannot lose packets: /bin/false exit status"), "{error}");
    if !is_possible() {
        return;
    }
    let bed = Bed::start().expect("a bed");
    let server = "127.0.0.1:1".parse().expect("an address");
    let error = bed.packet_link(Path::new("/bin/false"), server, 5).expect_err("no link");
    // Seen by the bed, or by what reads from it.
    let text = error.to_string();
    assert!(text.contains("packet-link") && text.contains("ended"), "{text}");
}

#[test]
fn a_program_that_does_not_answer_is_an_error_within_the_limit_of_the_bed() {
    let limit = Duration::from_secs(2);
    let bed = Bed::builder().ready_within(limit).start().expect("a bed");
    let server = "127.0.0.1:1".parse().expect("an address");
    let started = Instant::now();
    let error = bed.packet_link(&silent_program(bed.dir()), server, 6).expect_err("no link");
    assert!(error.to_string().contains("no answer within 2s"), "{error}");
    assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
    if is_possible() {
        // On a machine that stands still a sound one may not answer within the limit either.
        let server = echo_server();
        let mut tries = (0..5).map(|_| bed.packet_link(Path::new(STAND_IN), server, 6));
        let link = tries.find_map(Result::ok).expect("a link in one of five tries");
        let started = Instant::now();
        kill(Pid::from_raw(link.pid().cast_signed()), Signal::SIGSTOP).expect("frozen");
        let error = link.counts().expect_err("no answer");
        assert!(error.to_string().contains("no answer within 2s"), "{error}");
        let error = link.heal().expect_err("it was killed");
        assert!(!error.to_string().contains("no answer"), "{error}");
        assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
    }
}

#[test]
fn a_process_that_cannot_listen_ends_with_an_error() {
    if !is_possible() {
        return;
    }
    let folder = Bed::start().expect("a bed");
    let [entrance, exit] = ["missing/in", "out"].map(|name| folder.dir().join(name));
    let mut command = Command::new(STAND_IN);
    command.arg("packet-link").args([&entrance, &exit]).arg("7").stdin(Stdio::piped());
    let mut process = command.stderr(Stdio::piped()).spawn().expect("started");
    let mut code = None;
    let deadline = Instant::now() + LIMIT;
    while code.is_none() && Instant::now() < deadline {
        code = process.try_wait().expect("a child");
        thread::sleep(Duration::from_millis(10));
    }
    process.kill().expect("killed");
    let output = process.wait_with_output().expect("its words");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code.and_then(|code| code.code()), Some(1), "{said}");
    assert!(said.contains("No such file"), "{said}");
}

#[test]
fn a_link_accepts_connections_again_after_it_had_too_many_open_files() {
    if !is_possible() {
        return;
    }
    let bed = Bed::start().expect("a bed");
    let link = link_to_echo(&bed, 8);
    let set_soft_limit = |limit: &str| {
        let pid = link.pid().to_string();
        let limit = format!("--nofile={limit}:");
        let status = Command::new("prlimit").args(["--pid", &pid, &limit]).status();
        assert!(status.expect("prlimit runs").success());
    };
    set_soft_limit("3");
    let mut refused = TcpStream::connect(link.addr()).expect("a connection");
    refused.set_read_timeout(Some(Duration::from_millis(300))).expect("a limit");
    let answer = refused.write_all(b"x").and_then(|()| refused.read(&mut [0]));
    assert!(!matches!(answer, Ok(1)), "a file was opened beyond the limit");
    set_soft_limit("512");
    send_and_compare(&link, 1_000);
}

#[test]
fn a_dropped_link_leaves_no_socket_in_the_folder_of_its_bed() {
    if !is_possible() {
        return;
    }
    let bed = Bed::start().expect("a bed");
    let sockets = || {
        let names = fs::read_dir(bed.dir()).expect("a folder").flatten();
        names.filter(|entry| entry.file_name().to_string_lossy().starts_with("packets")).count()
    };
    let link = link_to_echo(&bed, 9);
    assert_eq!(sockets(), 2);
    drop(link);
    assert_eq!(sockets(), 0);
}
