//! The host by itself: how fast its processors, memory, loopback and disk are, and how steadily.
//!
//! Each second has four parts, so that every figure covers the whole time:
//!
//! - all processors count in a loop at once;
//! - memory is read in an order that no cache foresees;
//! - a message goes to another thread over loopback and back;
//! - a page is written and synced.
//!
//! The figure of a second is a mean, so it shows a processor that was taken away. A host is steady
//! if the seconds of each figure lie close enough together.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::Serialize;

use crate::bars::{MAX_SPREAD, median, spread};
use crate::error::{Error, Result};
use crate::table::percent;

/// How long each of the four parts of a second lasts.
const PART_DURATION: Duration = Duration::from_millis(250);
/// The largest spread of a disk, which other hosts may share. A group of orders waits for it once.
const MAX_DISK_SPREAD: f64 = 0.5;
/// Lines of the memory that is read: 64 MiB, more than most caches hold.
const MEMORY_LINES: u32 = 1 << 20;
/// Steps between two looks at the clock.
const STEPS_PER_CLOCK_READ: u32 = 1 << 12;
/// How long a message may be on its way.
const LOOPBACK_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a message over loopback: a short request.
const MESSAGE_BYTES: usize = 128;
/// Bytes that are written and synced.
const PAGE_BYTES: usize = 4096;

/// A cache line, which holds the number of the line that is read after it.
type CacheLine = [u32; 16];

/// How fast and how steady the host is.
#[derive(Debug, Clone, Serialize)]
pub struct HostReport {
    /// Whether every figure is steady.
    pub steady: bool,
    /// The figures.
    pub figures: Vec<HostFigure>,
}

/// One figure of the host.
#[derive(Debug, Clone, Serialize)]
pub struct HostFigure {
    /// What it is of.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// The figure of each second.
    pub seconds: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// Their largest distance, as a part of the median; none of a single second.
    pub spread: Option<f64>,
    /// The largest spread of a steady host.
    pub max_spread: f64,
}

impl HostFigure {
    fn new((name, unit, max_spread): (String, &'static str, f64), seconds: Vec<f64>) -> Self {
        let (median, spread) = (median(&seconds).unwrap_or(0.0), spread(&seconds));
        Self { name, unit, seconds, median, spread, max_spread }
    }

    fn is_steady(&self) -> bool {
        self.spread.is_some_and(|spread| spread <= self.max_spread)
    }
}

impl HostReport {
    /// Measures for `seconds` seconds; blocks.
    pub fn measure(seconds: u64) -> Result<Self> {
        let failed = |error: io::Error| Error::Setup(format!("the host was not measured: {error}"));
        Self::try_measure(seconds, PART_DURATION).map_err(failed)
    }

    fn try_measure(seconds: u64, part: Duration) -> io::Result<Self> {
        let processors = allowed_processors()?;
        let mut probes = Probes::new()?;
        let spins = processors.iter().map(|one| (format!("spin on {one}"), "M/s", MAX_SPREAD));
        let others = [
            ("memory".to_owned(), "ns", MAX_SPREAD),
            ("loopback".to_owned(), "us", MAX_SPREAD),
            ("fsync".to_owned(), "us", MAX_DISK_SPREAD),
        ];
        let kinds: Vec<_> = spins.chain(others).collect();
        let mut all = vec![Vec::new(); kinds.len()];
        for _ in 0..seconds {
            let mut figures = spin(&processors, part)?;
            figures.extend([probes.memory(part), probes.loopback(part)?, probes.fsync(part)?]);
            for (series, figure) in all.iter_mut().zip(figures) {
                series.push(figure);
            }
        }
        let figures = kinds.into_iter().zip(all).map(|(kind, all)| HostFigure::new(kind, all));
        Ok(Self::of(figures.collect()))
    }

    fn of(figures: Vec<HostFigure>) -> Self {
        Self { steady: figures.iter().all(HostFigure::is_steady), figures }
    }

    /// All figures in one line.
    pub fn line(&self) -> String {
        let mut line =
            format!("the host is {}:", if self.steady { "steady" } else { "NOT STEADY" });
        for (index, figure) in self.figures.iter().enumerate() {
            let HostFigure { name, unit, median, spread, max_spread, .. } = figure;
            let comma = if index == 0 { "" } else { "," };
            let apart = spread.map_or_else(|| "one second".to_owned(), percent);
            let _ = write!(line, "{comma} {name} {median:.1} {unit} ({apart} apart");
            if !figure.is_steady() {
                let _ = write!(line, ", at most {}", percent(*max_spread));
            }
            line.push(')');
        }
        line
    }
}

fn allowed_processors() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|one| allowed.is_set(*one).unwrap_or(false)).collect())
}

/// Millions of additions a second of each processor, all at once.
fn spin(processors: &[usize], part: Duration) -> io::Result<Vec<f64>> {
    let one = |processor: usize| -> io::Result<f64> {
        let mut own = CpuSet::new();
        own.set(processor)?;
        sched_setaffinity(Pid::from_raw(0), &own)?;
        let (mut sum, mut rounds) = (0_u32, 0.0);
        let elapsed = repeat_for(part, || {
            sum = (0..STEPS_PER_CLOCK_READ)
                .fold(sum, |sum, step| std::hint::black_box(sum.wrapping_add(step)));
            rounds += 1.0;
            Ok(())
        })?;
        Ok(rounds * f64::from(STEPS_PER_CLOCK_READ) / elapsed / 1e6)
    };
    thread::scope(|scope| {
        let threads: Vec<_> =
            processors.iter().map(|processor| scope.spawn(move || one(*processor))).collect();
        let died = |_| Err(io::Error::other("a thread ended early"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect()
    })
}

/// What the parts of a second use again and again.
struct Probes {
    lines: Vec<CacheLine>,
    at: u32,
    connection: TcpStream,
    file: File,
}

impl Probes {
    fn new() -> io::Result<Self> {
        Ok(Self {
            lines: ring(MEMORY_LINES),
            at: 0,
            connection: echo()?,
            file: tempfile::tempfile()?,
        })
    }

    /// Nanoseconds until a line of memory is there.
    fn memory(&mut self, part: Duration) -> f64 {
        let mut steps = 0.0;
        let elapsed = repeat_for(part, || {
            for _ in 0..STEPS_PER_CLOCK_READ {
                self.at = self.lines[self.at as usize][0];
            }
            steps += f64::from(STEPS_PER_CLOCK_READ);
            Ok(())
        });
        elapsed.unwrap_or_default() * 1e9 / steps
    }

    /// Microseconds of a round trip to another thread.
    fn loopback(&mut self, part: Duration) -> io::Result<f64> {
        let (mut trips, mut message) = (0.0, [0; MESSAGE_BYTES]);
        let elapsed = repeat_for(part, || {
            self.connection.write_all(&message)?;
            self.connection.read_exact(&mut message)?;
            trips += 1.0;
            Ok(())
        })?;
        Ok(elapsed * 1e6 / trips)
    }

    /// Microseconds until a page is on the disk of the folder for temporary files, where the
    /// database's files are.
    fn fsync(&self, part: Duration) -> io::Result<f64> {
        let mut pages = 0.0;
        let elapsed = repeat_for(part, || {
            self.file.write_all_at(&[1; PAGE_BYTES], 0)?;
            self.file.sync_data()?;
            pages += 1.0;
            Ok(())
        })?;
        Ok(elapsed * 1e6 / pages)
    }
}

/// Repeats it, once or more; the seconds that all repetitions took.
fn repeat_for(part: Duration, mut once: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let began = Instant::now();
    loop {
        once()?;
        let elapsed = began.elapsed();
        if elapsed >= part {
            return Ok(elapsed.as_secs_f64());
        }
    }
}

/// Cache lines in one ring, in a random order (Sattolo's shuffle makes one cycle).
fn ring(lines: u32) -> Vec<CacheLine> {
    let mut next: Vec<u32> = (0..lines).collect();
    let mut dice = fastrand::Rng::with_seed(1);
    for index in (1..next.len()).rev() {
        next.swap(index, dice.usize(..index));
    }
    next.into_iter().map(|next| [next; 16]).collect()
}

/// A connection to a thread that sends back what comes, until the connection is closed.
fn echo() -> io::Result<TcpStream> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let connection = TcpStream::connect(listener.local_addr()?)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(LOOPBACK_TIMEOUT))?;
    let (mut other, _) = listener.accept()?;
    other.set_nodelay(true)?;
    thread::spawn(move || {
        let mut message = [0; MESSAGE_BYTES];
        while other.read_exact(&mut message).and_then(|()| other.write_all(&message)).is_ok() {}
    });
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, max_spread: f64, seconds: &[f64]) -> HostFigure {
        HostFigure::new((name.to_owned(), "us", max_spread), seconds.to_vec())
    }

    #[test]
    fn a_host_is_steady_only_if_every_figure_stays_within_its_bound() {
        let steady = HostReport::of(vec![
            figure("loopback", 0.2, &[10.0, 11.0, 9.5]),
            figure("fsync", 0.5, &[100.0, 140.0, 95.0]),
        ]);
        assert!(steady.steady, "{steady:?}");
        let expected = "the host is steady: loopback 10.0 us (15 % apart), fsync 100.0 us (45 % \
                        apart)";
        assert_eq!(steady.line(), expected);
        let unsteady = HostReport::of(vec![
            figure("loopback", 0.2, &[10.0, 13.0, 9.5]),
            figure("fsync", 0.5, &[100.0, 140.0, 95.0]),
        ]);
        assert!(!unsteady.steady, "{unsteady:?}");
        assert!(
            unsteady.line().contains("NOT STEADY: loopback 10.0 us (35 % apart, at most 20 %)")
        );
        assert!(!HostReport::of(vec![figure("spin", 0.2, &[1.0])]).steady, "of one second");
    }

    #[test]
    fn every_processor_and_server_path_is_measured_in_every_second() {
        let report = HostReport::try_measure(2, Duration::from_millis(5)).expect("measured");
        let processors = allowed_processors().expect("known").len();
        assert_eq!(report.figures.len(), processors + 3);
        for figure in &report.figures {
            assert_eq!(figure.seconds.len(), 2, "{figure:?}");
            assert!(figure.seconds.iter().all(|second| *second > 0.0), "{figure:?}");
        }
    }

    #[test]
    fn a_ring_visits_all_of_its_lines() {
        let ring = ring(1000);
        let (mut at, mut seen) = (0, [false; 1000]);
        for _ in 0..1000 {
            seen[at as usize] = true;
            at = ring[at as usize][0];
        }
        assert!(at == 0 && seen.iter().all(|seen| *seen));
    }
}
