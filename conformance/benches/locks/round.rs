//! Cells in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use loadtest_measure::bars::{ROUNDS, SECONDS};
use loadtest_measure::error::{Error, Result};
use serde::Serialize;
use tokio::time::timeout;

use crate::cell::{Cell, Sample, Slice};
use crate::groups::{Group, Stage};
use crate::report::line;
use crate::rows::Row;
use crate::versions::Versions;

/// What a slice may take beyond its length, before the run is given up.
const OVERRUN_LIMIT: Duration = Duration::from_mins(1);

/// How often and for how long each cell is measured.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Lengths {
    pub(crate) rounds: usize,
    pub(crate) seconds: Duration,
    /// Cells that have to warm up do.
    pub(crate) warm_up: bool,
}

impl Lengths {
    pub(crate) fn of(rounds: usize, seconds: Duration) -> Self {
        Self { rounds, seconds, warm_up: true }
    }

    /// No measurement: only whether it can be made.
    pub(crate) fn smoke() -> Self {
        Self { rounds: 1, seconds: Duration::from_millis(100), warm_up: false }
    }

    /// Whether that is enough for a verdict.
    pub(crate) fn are_long_enough(self) -> bool {
        self.rounds >= ROUNDS && self.seconds >= Duration::from_secs(SECONDS)
    }
}

/// A group's cells by name: of each every round.
pub(crate) type Samples = BTreeMap<Group, BTreeMap<&'static str, Vec<Sample>>>;

/// Measures what these rows need, and says by what; `tell` is called for each cell.
pub(crate) fn measure(
    rows: &[Row],
    lengths: Lengths,
    tell: &dyn Fn(&str),
) -> Result<(Samples, Versions)> {
    let stage = Stage::new(!lengths.warm_up)?;
    let mut needed = BTreeMap::<Group, BTreeSet<&'static str>>::new();
    for row in rows {
        needed.entry(row.group).or_default().extend(row.cells());
    }
    let mut samples = Samples::new();
    for (group, names) in needed {
        let cells = names.into_iter().map(|name| Ok((name, group.cell(name, &stage)?)));
        let mut cells = cells.collect::<Result<Vec<_>>>()?;
        let measured = stage.runtime.block_on(rounds(group, &mut cells, lengths, tell))?;
        samples.insert(group, measured);
    }
    let with_redisson = samples.keys().any(|group| group.is_beside_redisson());
    let versions = stage.runtime.block_on(Versions::read(&stage.servers, with_redisson));
    Ok((samples, versions))
}

async fn rounds(
    group: Group,
    cells: &mut [(&'static str, Box<dyn Cell>)],
    lengths: Lengths,
    tell: &dyn Fn(&str),
) -> Result<BTreeMap<&'static str, Vec<Sample>>> {
    let mut samples = BTreeMap::<_, Vec<Sample>>::new();
    for (_, cell) in cells.iter_mut().filter(|_| lengths.warm_up) {
        let length = cell.warm_up();
        fill(cell.as_mut(), length, group.slice()).await?;
    }
    for round in 1..=lengths.rounds {
        let mut sums = vec![Slice::default(); cells.len()];
        let mut left = group.seconds(lengths.seconds);
        while !left.is_zero() {
            let length = left.min(group.slice());
            for ((_, cell), sum) in cells.iter_mut().zip(&mut sums) {
                sum.add(in_time(cell.as_mut(), length).await?);
            }
            left -= length;
        }
        for ((name, _), sum) in cells.iter().zip(sums) {
            let sample = sum.sample();
            tell(&line(round, &group.to_string(), name, &sample));
            samples.entry(*name).or_default().push(sample);
        }
    }
    Ok(samples)
}

async fn fill(cell: &mut dyn Cell, mut left: Duration, slice: Duration) -> Result<()> {
    while !left.is_zero() {
        let length = left.min(slice);
        in_time(cell, length).await?;
        left -= length;
    }
    Ok(())
}

async fn in_time(cell: &mut dyn Cell, length: Duration) -> Result<Slice> {
    let late =
        |_| Error::Setup(format!("a slice of {length:?} is not over {OVERRUN_LIMIT:?} later"));
    timeout(length + OVERRUN_LIMIT, cell.slice(length)).await.map_err(late)?
}
