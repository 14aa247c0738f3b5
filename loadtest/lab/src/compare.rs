//! The comparison: the cells of the matrix with short work and no fault, in the order of the table.

use std::time::Instant;

use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::validity::{
    MIN_IN_FLIGHT, MIN_REQUESTS, MIN_SIMULTANEOUS, MIN_STOCK, MIN_USERS_PER_UNIT,
};
use loadtest_load::moment::rfc3339;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::machine::Machine;
use tokio_util::sync::CancellationToken;

use crate::cell::CellReport;
use crate::cell_axes::{CellAxes, Load, PurchaseMode};
use crate::cell_plan::CellRequest;
use crate::cell_spec::CellSpec;
use crate::cluster::MAX_DEPLOYMENTS;
use crate::histories::Histories;
use crate::jvm_support;
use crate::lock::Lock;
use crate::results::{NotApplicable, RunEvent, RunObserver, RunResults};
use crate::runner::{ClusterSpec, Runner};
use crate::topology::Topology;

/// Most replicas in one cell.
pub const MAX_REPLICAS: u16 = 16;
/// Longest extra work inside the locked section, in milliseconds. It stays well below the service's
/// lease of 10 s: the predictions hold for work that is shorter than the lease.
pub const MAX_WORK_MS: u64 = 2000;

/// What a comparison runs.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// What the cluster is made of.
    pub parts: ClusterSpec,
    /// The locks.
    pub locks: Vec<Lock>,
    /// What they are held for.
    pub scopes: Vec<Scope>,
    /// With and without the database's guards.
    pub guards: Vec<Guards>,
    /// Numbers of replicas.
    pub replicas: Vec<u16>,
    /// Which servers they run on.
    pub topology: Topology,
    /// The load of each cell.
    pub load: Load,
    /// Where the histories of its cells are.
    pub histories: Option<Histories>,
}

impl Comparison {
    /// All cells, each once, in the order of the table.
    ///
    /// Without guards first; per user, then per voucher; many replicas before one; the local and
    /// the distributed locks side by side, no lock last.
    pub fn places(&self) -> Vec<CellAxes> {
        let mut places = Vec::new();
        for &guards in &self.guards {
            for &scope in &self.scopes {
                for &replicas in &self.replicas {
                    for &lock in &self.locks {
                        let axes = CellAxes { lock, scope, guards, replicas };
                        if !places.contains(&axes) {
                            places.push(axes);
                        }
                    }
                }
            }
        }
        places.sort_by_key(|axes| {
            let replicas = std::cmp::Reverse(axes.replicas);
            (axes.guards, axes.scope, replicas, axes.lock.rank())
        });
        places
    }

    /// Cells that are run, and places that are none: the writer has nothing to show there, or the
    /// servers do not fit.
    fn cells(&self) -> (Vec<CellSpec>, Vec<NotApplicable>) {
        let (mut trials, mut not_applicable) = (Vec::new(), Vec::new());
        for axes in self.places() {
            let trial = CellSpec { topology: self.topology, ..CellSpec::plain(axes) };
            let fits = self.load.writer.fits(axes).and_then(|()| {
                let is_single = self.topology.is_single();
                if is_single { Ok(()) } else { trial.supports_mode(self.load.mode) }?;
                trial.expectation().map(drop)
            });
            match fits {
                Ok(()) => trials.push(trial),
                Err(because) => not_applicable.push(NotApplicable { axes, because }),
            }
        }
        (trials, not_applicable)
    }

    /// Checks the bounds before anything is started.
    pub fn check(&self) -> Result<()> {
        let (trials, not_applicable) = self.cells();
        if let ([], [one, ..]) = (&trials[..], &not_applicable[..]) {
            return Err(Error::Usage(format!("there is no cell to run: {one}")));
        }
        let cells = trials.len();
        if cells == 0 || cells > usize::from(MAX_DEPLOYMENTS) {
            return Err(Error::Usage(format!("{cells} cells are not 1 to {MAX_DEPLOYMENTS}")));
        }
        if self.replicas.iter().any(|replicas| !(1..=MAX_REPLICAS).contains(replicas)) {
            return Err(Error::Usage(format!("replicas must be 1 to {MAX_REPLICAS}")));
        }
        self.check_load()?;
        if self.load.mode == PurchaseMode::Queued {
            self.check_queued()?;
        }
        jvm_support::check(&trials, &self.load)?;
        if self.load.work_ms > MAX_WORK_MS {
            return Err(Error::Usage(format!("--work-ms must be at most {MAX_WORK_MS}")));
        }
        Ok(())
    }

    /// In that mode there is one cell for each number of replicas.
    fn check_queued(&self) -> Result<()> {
        let is_one = self.places().iter().all(|axes| {
            let CellAxes { lock, scope, guards, .. } = *axes;
            (lock, scope, guards) == (Lock::None, Scope::User, Guards::On)
        });
        if is_one && self.load.work_ms == 0 {
            return Ok(());
        }
        let what = "--mode queued takes no lock and has the guards on: it goes with --locks none \
                    --scopes user --guards on, and with no --work-ms";
        Err(Error::Usage(what.to_owned()))
    }

    /// A load below what a cell needs could only end as invalid.
    fn check_load(&self) -> Result<()> {
        let Load { users, stock, connections, requests_per_user, .. } = &self.load;
        let users = *users as u64;
        let per_user = *requests_per_user as u64;
        let wanted = MIN_USERS_PER_UNIT.saturating_mul(*stock);
        let requests = users.saturating_mul(per_user);
        let needs = [
            (*stock < MIN_STOCK, format!("--stock must be at least {MIN_STOCK}")),
            (
                users < wanted,
                format!("--users must be at least {wanted}: {MIN_USERS_PER_UNIT} for each unit"),
            ),
            (
                per_user < MIN_SIMULTANEOUS,
                format!("--requests-per-user must be at least {MIN_SIMULTANEOUS}"),
            ),
            (
                requests < MIN_REQUESTS,
                format!("--users times --requests-per-user must be at least {MIN_REQUESTS}"),
            ),
            (
                u32::try_from(*connections).is_ok_and(|many| f64::from(many) < MIN_IN_FLIGHT),
                format!("--connections must be at least {MIN_IN_FLIGHT:.0}"),
            ),
        ];
        match needs.into_iter().find(|(is_short, _)| *is_short) {
            Some((_, need)) => {
                Err(Error::Usage(format!("{need}: less is no load that a cell could be judged by")))
            }
            None => Ok(()),
        }
    }

    /// Runs every cell; one that fails is reported and the others continue. `stop` ends the run:
    /// cells that are left are reported as not run.
    pub async fn run(
        &self,
        observer: RunObserver<'_>,
        stop: &CancellationToken,
    ) -> Result<RunResults> {
        self.check()?;
        let (began, started_at) = (Instant::now(), rfc3339(time::OffsetDateTime::now_utc()));
        let (trials, not_applicable) = self.cells();
        let mut runner = Runner::start(self.parts.clone(), &trials, stop).await?;
        let mut cells = Vec::with_capacity(trials.len());
        for &trial in &trials {
            let wanted = CellRequest { trial, default_load: &self.load, seed: 0 };
            let is_red = |report: &CellReport| !report.ok();
            let histories = self.histories.as_ref();
            let report = runner.run(&[wanted], histories, is_red, stop).await.remove(0);
            if !stop.is_cancelled() {
                let (number, total) = (cells.len() + 1, trials.len());
                observer(RunEvent::CellFinished { cell: &report, number, total });
            }
            cells.push(report);
        }
        Ok(RunResults {
            cells,
            not_applicable,
            selection: None,
            injected_bugs: None,
            load: self.load.clone(),
            chosen: self.parts.chosen.clone(),
            settings: runner.settings(),
            versions: runner.versions(),
            machine: Machine::read(),
            started_at,
            took_s: began.elapsed().as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use crate::cluster::ServerPrograms;

    use super::*;
    use crate::cell_axes::Writer;
    use crate::fleet::Fleet;
    use crate::predict::Prediction;

    fn predicted(axes: CellAxes) -> Prediction {
        CellSpec::plain(axes).expectation().expect("the table knows short work").prediction
    }

    fn comparison() -> Comparison {
        Comparison {
            parts: ClusterSpec {
                servers: ServerPrograms::INSTALLED,
                program: PathBuf::new(),
                chosen: Vec::new(),
            },
            locks: vec![Lock::None, Lock::Local, Lock::Redisson],
            scopes: vec![Scope::User, Scope::Voucher],
            guards: vec![Guards::Off, Guards::On],
            replicas: vec![1, 3],
            topology: Topology::Single,
            load: Load {
                users: 700,
                stock: 100,
                connections: 96,
                requests_per_user: 3,
                work_ms: 0,
                injected_bug: None,
                mode: PurchaseMode::Direct,
                writer: Writer::Single,
                fleet: Fleet::RUST,
            },
            histories: None,
        }
    }

    #[test]
    fn the_usual_comparison_has_24_cells_and_begins_with_the_pair_per_user() {
        let places = comparison().places();
        assert_eq!(places.len(), 24);
        let axes = |lock| CellAxes { lock, scope: Scope::User, guards: Guards::Off, replicas: 3 };
        assert_eq!(places[..2], [axes(Lock::Local), axes(Lock::Redisson)]);
        assert!(places[12..].iter().all(|axes| axes.guards == Guards::On));
    }

    #[test]
    fn naming_something_twice_makes_no_cell_twice() {
        let twice = Comparison { replicas: vec![1, 3, 1], ..comparison() };
        assert_eq!(twice.places().len(), 24);
    }

    #[test]
    fn the_writer_grouped_is_not_applicable_where_its_groups_have_one_member() {
        let grouped = Load { writer: Writer::Grouped, ..comparison().load };
        let all = Comparison { load: grouped.clone(), ..comparison() };
        let (places, not_applicable) = all.cells();
        assert_eq!((places.len(), not_applicable.len()), (6, 18));
        assert!(
            places.iter().all(|one| (one.axes.scope, one.axes.guards) == (Scope::User, Guards::On))
        );
        let guarded = |one: &&NotApplicable| one.axes.guards == Guards::On;
        let said: Vec<String> =
            not_applicable.iter().filter(guarded).map(ToString::to_string).collect();
        assert_eq!(said.len(), 6);
        assert!(said.iter().all(|one| one.ends_with(": n/a, groups of one")), "{said:?}");
        assert_eq!(places[0].axes.flags(&grouped).last().map(String::as_str), Some("grouped"));
        let guards = vec![Guards::On];
        let per_voucher = Comparison { scopes: vec![Scope::Voucher], guards, ..all };
        let error = per_voucher.check().expect_err("no cell");
        assert!(error.to_string().contains("n/a, groups of one"), "{error}");
    }

    #[test]
    fn shards_have_the_guards_on_and_no_lock_that_is_the_transaction() {
        let locks = vec![Lock::Redisson, Lock::MysqlRow];
        let sharded = Comparison { topology: Topology::Sharded, locks, ..comparison() };
        let (trials, not_applicable) = sharded.cells();
        assert_eq!((trials.len(), not_applicable.len()), (4, 12));
        assert!(trials.iter().all(|one| one.topology == Topology::Sharded));
        let guarded = |one: &CellSpec| (one.axes.lock, one.axes.guards);
        assert!(trials.iter().all(|one| guarded(one) == (Lock::Redisson, Guards::On)));
        let queued = Load { mode: PurchaseMode::Queued, ..sharded.load.clone() };
        let queued = Comparison { load: queued, locks: vec![Lock::None], ..sharded };
        let queued = Comparison { scopes: vec![Scope::User], guards: vec![Guards::On], ..queued };
        let error = queued.check().expect_err("none");
        assert!(error.to_string().contains("not tried on shards"), "{error}");
    }

    #[test]
    fn a_comparison_beyond_its_bounds_is_a_usage_error() {
        let long_work = Load { work_ms: 5000, ..comparison().load };
        let queued = Load { mode: PurchaseMode::Queued, ..comparison().load };
        for wrong in [
            Comparison { replicas: vec![0], ..comparison() },
            Comparison { replicas: vec![99], ..comparison() },
            Comparison { locks: vec![], ..comparison() },
            Comparison { load: long_work, ..comparison() },
            Comparison { load: queued, ..comparison() },
        ] {
            assert_eq!(wrong.check().expect_err("out of bounds").exit_code(), 2);
        }
    }

    #[test]
    fn a_load_that_no_cell_could_be_judged_by_is_refused_by_the_name_of_its_flag() {
        let default_load = || comparison().load;
        assert!(comparison().check().is_ok());
        for (load, flag) in [
            (Load { stock: 99, ..default_load() }, "--stock must be at least 100"),
            (Load { users: 499, ..default_load() }, "--users must be at least 500"),
            (
                Load { requests_per_user: 2, ..default_load() },
                "--requests-per-user must be at least 3",
            ),
            (Load { users: 666, ..default_load() }, "must be at least 2000"),
            (Load { connections: 63, ..default_load() }, "--connections must be at least 64"),
        ] {
            let wrong = Comparison { load, ..comparison() }.check().expect_err(flag);
            assert!(wrong.to_string().contains(flag), "{wrong}");
            assert_eq!(wrong.exit_code(), 2);
        }
    }

    #[test]
    fn guards_hold_everywhere_and_three_unguarded_cells_do() {
        let (unguarded, guarded): (Vec<CellAxes>, Vec<CellAxes>) =
            comparison().places().into_iter().partition(|axes| axes.guards == Guards::Off);
        assert!(guarded.iter().all(|axes| predicted(*axes).holds()));
        let holds = unguarded.into_iter().filter(|axes| predicted(*axes).holds()).count();
        assert_eq!(holds, 3, "local x 1 and redisson x 1 and 3, per voucher");
    }
}
