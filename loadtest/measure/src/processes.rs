//! What processes use, as `/proc` reports it.

use std::collections::BTreeMap;

use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{SysconfVar, sysconf};

/// A process, and what it is for; several may be for the same.
pub type NamedProcess = (&'static str, u32);

/// Seconds of processor time since the start of each, those for the same added.
#[derive(Debug, Clone, Default)]
pub struct ProcessTimes(BTreeMap<&'static str, f64>);

impl ProcessTimes {
    /// The processor time of these processes so far. An ended process counts as 0.
    pub fn of(processes: &[NamedProcess]) -> Self {
        let mut times = BTreeMap::<_, f64>::new();
        for (name, pid) in processes {
            *times.entry(*name).or_default() += seconds(*pid).unwrap_or(0.0);
        }
        Self(times)
    }

    /// Microseconds of processor time for each of `orders` orders since `earlier`.
    pub fn for_each(&self, earlier: &Self, orders: f64) -> BTreeMap<&'static str, f64> {
        let since = |(name, now): (&&'static str, &f64)| {
            let before = earlier.0.get(name).copied().unwrap_or(0.0);
            (*name, (now - before).max(0.0) * 1e6 / orders.max(1.0))
        };
        self.0.iter().map(since).collect()
    }
}

/// User and system time of a process and all its threads.
fn seconds(pid: u32) -> Option<f64> {
    seconds_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Seconds of processor time of each of a process's threads whose name contains this, by number.
/// A thread that has ended is not among them.
#[derive(Debug, Clone, Default)]
pub struct ThreadTimes(BTreeMap<String, f64>);

impl ThreadTimes {
    /// The processor time of these threads so far.
    pub fn of(pid: u32, name: &str) -> Self {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            return Self::default();
        };
        let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
            let path = thread.ok()?.path();
            let stat = std::fs::read_to_string(path.join("stat")).ok()?;
            let (before, _) = stat.rsplit_once(')')?;
            let number = path.file_name()?.to_string_lossy().into_owned();
            before.contains(name).then(|| Some((number, seconds_in(&stat)?))).flatten()
        };
        Self(threads.filter_map(of_thread).collect())
    }

    /// Seconds since `earlier` of the threads that still run. One that is new counts in full.
    pub fn seconds_since(&self, earlier: &Self) -> f64 {
        let since = |(number, now): (&String, &f64)| {
            (now - earlier.0.get(number).copied().unwrap_or(0.0)).max(0.0)
        };
        self.0.iter().map(since).sum()
    }
}

/// User and system time in the text of a `stat`.
fn seconds_in(stat: &str) -> Option<f64> {
    // The name may hold anything, also parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    let used = ticks()? + ticks()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    #[allow(clippy::cast_precision_loss)]
    let per_second = per_second as f64;
    Some(used / per_second)
}

/// Resident memory, in MiB.
pub fn memory_mib(pid: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<f64>().ok().map(|kib| kib / 1024.0)
}

/// Seconds of processor time of all children that have ended.
pub fn of_ended_children() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return 0.0 };
    #[allow(clippy::cast_precision_loss)]
    let seconds = [usage.user_time(), usage.system_time()]
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6);
    seconds.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_grows_while_it_works_and_is_added_by_name() {
        let own = std::process::id();
        let once = [("own", own)];
        let before = ProcessTimes::of(&once);
        let mut sum = 0_u64;
        while ProcessTimes::of(&once).0["own"] < before.0["own"] + 0.06 {
            sum = (0..100_000).fold(sum, |sum, number| sum.wrapping_mul(31).wrapping_add(number));
        }
        assert!(std::hint::black_box(sum) != 1);
        let used = ProcessTimes::of(&once).for_each(&before, 10.0);
        assert!(used["own"] >= 5_000.0, "0.06 s for ten orders: {used:?}");
        let twice = ProcessTimes::of(&[("own", own), ("own", own), ("gone", 0)]);
        assert!(twice.0["own"] >= 2.0 * before.0["own"]);
        assert!(twice.0["gone"].abs() < 1e-9);
    }

    #[test]
    fn the_time_of_threads_is_that_of_those_with_the_name() {
        let own = std::process::id();
        let seconds =
            move || ThreadTimes::of(own, "spins here").seconds_since(&ThreadTimes::default());
        let spin = move || {
            let mut sum = 0_u64;
            while seconds() < 0.06 {
                sum = (0..100_000).fold(sum, |sum, next| sum.wrapping_mul(31).wrapping_add(next));
            }
            sum
        };
        assert!(seconds().abs() < 1e-9, "there is none yet");
        let thread = std::thread::Builder::new().name("it spins here".to_owned());
        let thread = thread.spawn(spin).expect("a thread");
        assert!(std::hint::black_box(thread.join()).is_ok());
        assert!(ThreadTimes::of(0, "").0.is_empty(), "no process has this number");
    }

    #[test]
    fn a_thread_that_ended_takes_no_time_from_the_others() {
        let times = |of: &[(&str, f64)]| {
            ThreadTimes(of.iter().map(|(number, s)| ((*number).to_owned(), *s)).collect())
        };
        let earlier = times(&[("1", 2.0), ("2", 7.0)]);
        let now = times(&[("1", 2.5), ("3", 0.25)]);
        assert!((now.seconds_since(&earlier) - 0.75).abs() < 1e-9);
    }

    #[test]
    fn this_process_has_memory() {
        assert!(memory_mib(std::process::id()).is_some_and(|mib| mib > 0.5));
        assert_eq!(memory_mib(0), None);
    }
}
