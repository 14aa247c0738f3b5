//! `loadtest matrix`: its flags, and what they mean.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use loadtest_judge::setting::{Guards, Scope};
use loadtest_lab::cell_axes::{Load, PurchaseMode};
use loadtest_lab::cell_spec::CellSpec;
use loadtest_lab::cluster::need_failpoints;
use loadtest_lab::faults::{FaultKind, why_no_packet_loss};
use loadtest_lab::injected_bugs::MAX_SEEDS;
use loadtest_lab::injection_run::{InjectionRun, rows};
use loadtest_lab::jvm_support;
use loadtest_lab::lock::Lock;
use loadtest_lab::matrix::{Matrix, check};
use loadtest_lab::matrix_axes::{Axes, NotGenerated, leave_out_packet_loss};
use loadtest_lab::predict::Scenario;
use loadtest_lab::presets::Preset;
use loadtest_lab::results::RunEvent;
use loadtest_lab::topology::Topology;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::print::{print_line, print_status};
use loadtest_report::MATRIX;
use loadtest_report::progress::matrix_line;
use testbed::Flavor;

use super::output::OutputArgs;
use super::{EXIT_CODES, FleetArgs, PrivateArgs, stop_on_signal};

/// What `--locks` is.
const LOCKS: &str = "Locks around the purchase; `all` is every kind";

/// What `--faults` is.
const FAULTS: &str = "What happens to the deployment; `none` is no fault, `all` each that any \
                      program can have: `failpoint` is not among them and needs a `seckill` that \
                      was built with the feature `failpoints`, named with --seckill";

/// What `--topologies` is.
const TOPOLOGIES: &str = "Which servers the replicas run on [default: `single`, or what --redis, \
                          --database and --zookeeper name]";

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct MatrixArgs {
    #[command(flatten)]
    private: PrivateArgs,
    #[arg(long, value_name = "LOCKS", value_delimiter = ',', default_value = "redisson")]
    #[arg(help = format!("{LOCKS} {}", possible(&known_locks())))]
    #[arg(default_value_if("mode", "queued", "none"), conflicts_with = "PresetArgs")]
    locks: Vec<String>,
    /// What a lock is held for: all purchases of a user, or of a voucher
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "user,voucher")]
    #[arg(conflicts_with = "PresetArgs")]
    scopes: Vec<Scope>,
    /// Whether the unique key and the stock condition are enforced; `off` leaves only the lock
    #[arg(long, value_name = "GUARDS", value_delimiter = ',', default_value = "off,on")]
    #[arg(conflicts_with = "PresetArgs")]
    guards: Vec<Guards>,
    /// Numbers of replicas, 1 to 16
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "2")]
    #[arg(conflicts_with = "PresetArgs")]
    replicas: Vec<u16>,
    #[arg(long, value_name = "FAULTS", value_delimiter = ',', default_value = "none")]
    #[arg(help = format!("{FAULTS} {}", possible(&known_faults())))]
    #[arg(conflicts_with = "PresetArgs")]
    faults: Vec<String>,
    /// What happens around the locked section; with the frozen scenarios the fault is `freeze`
    #[arg(long, alias = "circumstances", value_name = "SCENARIOS", value_delimiter = ',')]
    #[arg(default_value = "short-work,frozen-unfenced,frozen-fenced")]
    #[arg(conflicts_with = "PresetArgs")]
    scenarios: Vec<Scenario>,
    #[arg(long, value_name = "TOPOLOGIES", value_delimiter = ',')]
    #[arg(help = format!("{TOPOLOGIES} {}", possible(&known_topologies())))]
    #[arg(conflicts_with = "PresetArgs")]
    topologies: Option<Vec<String>>,
    /// When replicas answer: after the COMMIT, or at admission with a ticket. With `queued` no lock
    /// is taken (--locks is `none`) and the guards are on; other combinations count as no cells
    #[arg(long, alias = "path", value_name = "MODE", default_value = "direct")]
    #[arg(conflicts_with = "PresetArgs")]
    mode: PurchaseMode,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    preset: PresetArgs,
    /// Run only N cells of --full, drawn by the seed
    #[arg(long, value_name = "N", requires = "full")]
    sample: Option<usize>,
    /// Inject these bugs after the cells and see each caught: `all`, `none`, or names that
    /// `loadtest inject-bugs --list` prints [default: all with --full unless --sample, three quick
    /// ones with --story, else none]
    #[arg(long = "inject-bugs", alias = "plants", value_name = "BUGS", value_delimiter = ',')]
    injected_bugs: Option<Vec<String>>,
    /// Seeds of each injected bug [default: 3; 1 with --story]
    #[arg(long, alias = "plant-seeds", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MAX_SEEDS))]
    bug_seeds: Option<u64>,
    /// Seed of the moments, victims and sizes of faults; the same seed gives the same schedule
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Remember finished cells in this file, and skip the cells that it holds
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    /// Print the cells with their predictions and reasons, and the bugs to be injected; run none
    #[arg(long)]
    list: bool,
}

/// Cells that belong together, instead of a product.
#[derive(Debug, Args)]
#[group(multiple = false)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
struct PresetArgs {
    /// Run the smoke preset: every lock, every fault of single servers, in a few minutes
    #[arg(long)]
    smoke: bool,
    /// Run the topologies preset: each of several servers, without faults and with some
    #[arg(long)]
    smoke_topologies: bool,
    /// Run the story preset: local against distributed, guards off and on, one frozen holder
    #[arg(long)]
    story: bool,
    /// Run every cell that has a prediction; takes hours
    #[arg(long)]
    full: bool,
}

impl PresetArgs {
    fn preset(&self) -> Option<Preset> {
        let Self { smoke, smoke_topologies, story, full } = *self;
        let presets = [
            (smoke, Preset::Smoke),
            (smoke_topologies, Preset::SmokeTopologies),
            (story, Preset::Story),
            (full, Preset::Full),
        ];
        presets.into_iter().find(|(wanted, _)| *wanted).map(|(_, preset)| preset)
    }
}

/// Fails if a server that only `MariaDB` has is to be `MySQL`'s.
fn check_flavor(flavor: Flavor, trials: &[CellSpec]) -> Result<()> {
    let is_wrong = |trial: &&CellSpec| flavor == Flavor::MySql && trial.topology.is_of_mariadb();
    let Some(CellSpec { topology, .. }) = trials.iter().find(is_wrong) else { return Ok(()) };
    let what = format!("the topology {} is MariaDB's: leave out --db mysql", topology.name());
    Err(Error::Usage(what))
}

/// Draws the cells of a sample, the same on each machine; then leaves out those that this one
/// cannot run.
fn sample_trials(
    (trials, not_generated): (Vec<CellSpec>, Vec<NotGenerated>),
    sample: Option<usize>,
    seed: u64,
    why_no_packet_loss: impl FnOnce() -> Option<String>,
) -> (Vec<CellSpec>, Vec<NotGenerated>) {
    let drawn = match sample {
        Some(count) => Preset::sample(trials, count, seed),
        None => trials,
    };
    leave_out_packet_loss((drawn, not_generated), why_no_packet_loss)
}

/// Whether all cells were as predicted.
pub(super) async fn run(args: MatrixArgs) -> Result<bool> {
    let preset = args.preset.preset();
    if preset.is_some() && !args.private.topology()?.is_single() {
        let what = "a preset has its own servers: leave out --zookeeper 3, and choose mysql or \
                    mariadb, and single or valkey";
        return Err(Error::Usage(what.to_owned()));
    }
    let all = match preset {
        Some(preset) => preset.trials(),
        None => args.axes()?.trials(),
    };
    let (trials, not_generated) = sample_trials(all, args.sample, args.seed, why_no_packet_loss);
    check_flavor(args.private.servers().flavor, &trials)?;
    let injection = args.injection()?;
    check(&trials, &not_generated)?;
    let load = Load { mode: args.mode, fleet: args.fleet.fleet(), ..Load::DEFAULT };
    if args.list {
        for trial in &trials {
            if let Ok(expected) = trial.expectation() {
                print_line(format_args!(
                    "{trial}: {}, because {}",
                    expected.prediction.words(),
                    expected.because
                ));
            }
        }
        for one in &not_generated {
            print_line(format_args!("not generated, {}: {}", one.combinations, one.because));
        }
        print_line(format_args!("{} cells", trials.len()));
        if !injection.rows.is_empty() {
            super::injected_bugs::list(&injection.rows);
        }
        return Ok(true);
    }
    jvm_support::check(&trials, &load)?;
    let parts = args.private.parts_without_topology()?;
    if trials.iter().any(|trial| trial.fault == Some(FaultKind::Failpoint)) {
        need_failpoints(&parts.program).await?;
    }
    let matrix = Matrix {
        parts,
        trials,
        not_generated,
        preset,
        sample: args.sample,
        load,
        seed: args.seed,
        injection,
        resume: args.resume,
        histories: None,
    };
    let histories = args.output.histories()?;
    let matrix = Matrix { histories, ..matrix };
    let output = args.output.open(MATRIX)?;
    let stop = stop_on_signal()?;
    let observer = |event: RunEvent<'_>| print_status(matrix_line(event));
    output.take(Box::pin(matrix.run(&observer, &stop)).await?, &stop)
}

impl MatrixArgs {
    fn injection(&self) -> Result<InjectionRun> {
        let (usual, seeds) = Preset::default_bugs(self.preset.preset(), self.sample.is_some());
        let usual = || usual.iter().copied().map(str::to_owned).collect();
        let names = self.injected_bugs.clone().unwrap_or_else(usual);
        Ok(InjectionRun { rows: rows(&names)?, seeds: self.bug_seeds.unwrap_or(seeds) })
    }

    /// Several servers are a topology, and name it.
    fn topologies(&self) -> Result<Vec<Topology>> {
        let of_flags = self.private.topology()?;
        match &self.topologies {
            None => Ok(vec![of_flags]),
            Some(names) if of_flags.is_single() => topologies(names),
            Some(_) => {
                let what = "other flags name the servers already: leave out --topologies";
                Err(Error::Usage(what.to_owned()))
            }
        }
    }

    fn axes(&self) -> Result<Axes> {
        Ok(Axes {
            locks: locks(&self.locks)?,
            scopes: self.scopes.clone(),
            guards: self.guards.clone(),
            replicas: self.replicas.clone(),
            scenarios: self.scenarios.clone(),
            faults: faults(&self.faults)?,
            topologies: self.topologies()?,
            mode: self.mode,
        })
    }
}

fn locks(names: &[String]) -> Result<Vec<Lock>> {
    let mut locks = Vec::new();
    for name in names {
        match Lock::from_str(name, false) {
            _ if name == "all" => locks.extend(Lock::value_variants()),
            Ok(lock) => locks.push(lock),
            Err(_) => {
                return Err(Error::unknown("lock", name, &known_locks()));
            }
        }
    }
    Ok(locks)
}

fn faults(names: &[String]) -> Result<Vec<Option<FaultKind>>> {
    let mut faults = Vec::new();
    for name in names {
        match (name.as_str(), FaultKind::named(name)) {
            ("all", _) => faults.extend(FaultKind::all_servers().map(Some)),
            ("none", _) => faults.push(None),
            (_, Some(fault)) => faults.push(Some(fault)),
            (_, None) => {
                return Err(Error::unknown("fault", name, &known_faults()));
            }
        }
    }
    Ok(faults)
}

fn topologies(names: &[String]) -> Result<Vec<Topology>> {
    let mut topologies = Vec::new();
    for name in names {
        match Topology::from_str(name, false) {
            _ if name == "all" => topologies.extend(Topology::value_variants()),
            Ok(topology) => topologies.push(topology),
            Err(_) => return Err(Error::unknown("topology", name, &known_topologies())),
        }
    }
    Ok(topologies)
}

fn known_topologies() -> Vec<&'static str> {
    names(Topology::value_variants().iter().map(|topology| topology.name()))
}

fn known_locks() -> Vec<&'static str> {
    names(Lock::value_variants().iter().map(|lock| lock.name()))
}

fn known_faults() -> Vec<&'static str> {
    names(std::iter::once("none").chain(FaultKind::known().map(FaultKind::name)))
}

/// Names as help texts have them.
fn possible(names: &[&str]) -> String {
    format!("[possible values: {}]", names.join(", "))
}

fn names(known: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    std::iter::once("all").chain(known).collect()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    #[test]
    fn a_database_of_several_servers_is_the_topology_of_all_cells() {
        let parse = |flags: &[&str]| {
            let line = ["loadtest", "matrix"].iter().chain(flags);
            match crate::cli::Cli::parse_from(line).command {
                crate::cli::Command::Matrix(args) => args,
                _ => unreachable!("the line says matrix"),
            }
        };
        for (flags, expected) in [
            (&[][..], Topology::Single),
            (&["--database", "mysql"], Topology::Single),
            (&["--database", "sharded"], Topology::Sharded),
            (&["--db", "galera"], Topology::Galera),
            (&["--topologies", "ensemble"], Topology::Ensemble),
        ] {
            let axes = parse(flags).axes().expect("axes");
            assert_eq!(axes.topologies, [expected], "{flags:?}");
        }
        let pair = parse(&["--db", "mysql", "--topologies", "semi-sync,async"]).axes();
        assert_eq!(pair.expect("axes").topologies, [Topology::SemiSync, Topology::Async]);
        let axes = parse(&["--topologies", "semi-sync,galera"]).axes().expect("axes");
        for (trials, _) in [axes.trials(), Preset::SmokeTopologies.trials()] {
            let error = check_flavor(Flavor::MySql, &trials).expect_err("MySQL has no Galera");
            assert!(error.to_string().contains("is MariaDB's"), "{error}");
            assert!(check_flavor(Flavor::MariaDb, &trials).is_ok());
        }
        assert!(check_flavor(Flavor::MySql, &Preset::Smoke.trials().0).is_ok());
        let twice = parse(&["--database", "sharded", "--topologies", "galera"]).axes();
        assert_eq!(twice.expect_err("two say where").exit_code(), 2);
    }

    #[test]
    fn a_sample_has_the_same_cells_on_each_machine_but_those_that_it_cannot_run() {
        let sample = |why_not: Option<&str>| {
            sample_trials(Preset::Smoke.trials(), Some(13), 1, || why_not.map(str::to_owned))
        };
        let (everywhere, _) = sample(None);
        let (here, not_generated) = sample(Some("no packets can be lost"));
        let loses = |trial: &&CellSpec| matches!(trial.fault, Some(FaultKind::LosePackets(_)));
        let left_out = everywhere.iter().filter(loses).count();
        assert!(left_out > 0, "the sample has no such cell");
        assert_eq!((everywhere.len(), not_generated[0].combinations), (13, left_out));
        let others = everywhere.into_iter().filter(|trial| !loses(&trial));
        assert_eq!(here, others.collect::<Vec<_>>());
    }

    #[test]
    fn all_is_every_one_and_an_unknown_name_is_a_usage_error_that_lists_them() {
        let all = [String::from("all")];
        assert_eq!(locks(&all).expect("locks").len(), Lock::value_variants().len());
        assert_eq!(faults(&all).expect("faults").len(), FaultKind::all_servers().count());
        let wrong = [String::from("earthquake")];
        let errors = [
            locks(&wrong).expect_err("none"),
            faults(&wrong).expect_err("none"),
            topologies(&wrong).expect_err("none"),
        ];
        for error in errors {
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("possible values: all, "), "{error}");
        }
        let mut command = crate::cli::Cli::command();
        let matrix = command.find_subcommand_mut("matrix").expect("it is one");
        // Lines may end within a name.
        let help: String = matrix.render_help().to_string().split_whitespace().collect();
        let names = Lock::value_variants().iter().map(|lock| lock.name());
        for name in names.chain(FaultKind::known().map(FaultKind::name)) {
            assert!(help.contains(&format!(",{name}")), "{name} in {help}");
        }
    }
}
