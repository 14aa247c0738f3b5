//! `loadtest matrix`: its flags, and what they mean.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::output::OutputArgs;
use super::{EXIT_CODES, PrivateArgs, stop_on_signal};
use crate::error::{Error, Result};
use crate::lab::cluster::need_failpoints;
use crate::lab::faults::FaultKind;
use crate::lab::lock::Lock;
use crate::lab::matrix::{Axes, Matrix, check};
use crate::lab::place::{Load, Path};
use crate::lab::planting::{MAX_SEEDS, Planting, rows};
use crate::lab::predict::{Circumstance, Guards, Scope};
use crate::lab::presets::Preset;
use crate::report::MATRIX;
use crate::say::say;

/// What `--faults` is.
const FAULTS: &str = "What happens to the deployment; `none` is no fault, `all` each that any \
                      program can have: `failpoint` is not among them and needs a `seckill` that \
                      was built with the feature `failpoints`, named with --seckill";

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct MatrixArgs {
    #[command(flatten)]
    private: PrivateArgs,
    #[arg(long, value_name = "LOCKS", value_delimiter = ',', default_value = "redisson")]
    #[arg(help = format!("Locks around the purchase; `all` is every kind {}", known_locks()))]
    #[arg(default_value_if("path", "queued", "none"), conflicts_with = "PresetArgs")]
    locks: Vec<String>,
    /// What a lock is held for
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "user,voucher")]
    #[arg(conflicts_with = "PresetArgs")]
    scopes: Vec<Scope>,
    /// Whether the database's unique key and stock condition guard the sale as well
    #[arg(long, value_name = "GUARDS", value_delimiter = ',', default_value = "off,on")]
    #[arg(conflicts_with = "PresetArgs")]
    guards: Vec<Guards>,
    /// Numbers of replicas
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "2")]
    #[arg(conflicts_with = "PresetArgs")]
    replicas: Vec<u16>,
    #[arg(long, value_name = "FAULTS", value_delimiter = ',', default_value = "none")]
    #[arg(help = format!("{FAULTS} {}", known_faults()))]
    #[arg(conflicts_with = "PresetArgs")]
    faults: Vec<String>,
    /// What happens around the locked section; the frozen ones are cells of the fault `freeze`
    #[arg(long, value_name = "CIRCUMSTANCES", value_delimiter = ',')]
    #[arg(default_value = "short-work,frozen-unfenced,frozen-fenced")]
    #[arg(conflicts_with = "PresetArgs")]
    circumstances: Vec<Circumstance>,
    /// When replicas answer; with `queued`, tickets are followed to their ends, no lock is taken
    /// (--locks is `none`) and the guards are on: other combinations are counted as no cells
    #[arg(long, value_name = "PATH", default_value = "direct")]
    #[arg(conflicts_with = "PresetArgs")]
    path: Path,
    #[command(flatten)]
    preset: PresetArgs,
    /// Only so many cells of --full, drawn by the seed
    #[arg(long, value_name = "N", requires = "full")]
    sample: Option<usize>,
    /// Plant these bugs after the cells and see each caught: `all`, `none`, or names that `loadtest
    /// plants --list` prints [default: all with --full unless --sample, three quick ones with
    /// --story, else none]
    #[arg(long, value_name = "BUGS", value_delimiter = ',')]
    plants: Option<Vec<String>>,
    /// Seeds of each planted bug [default: 3; 1 with --story]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MAX_SEEDS))]
    plant_seeds: Option<u64>,
    /// Settles the moments, victims and sizes of faults; the same seed gives the same schedule
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Remember what is finished in this file, and do not run again what is in it
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    /// Print the cells with what each is to show and why, and the bugs to be planted; run none
    #[arg(long)]
    list: bool,
}

/// Cells that belong together, instead of a product.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct PresetArgs {
    /// A few minutes instead: every lock and every fault once
    #[arg(long)]
    smoke: bool,
    /// The story instead: local against distributed, guards off and on, one frozen holder
    #[arg(long)]
    story: bool,
    /// Everything instead that has a prediction; takes hours
    #[arg(long)]
    full: bool,
}

impl PresetArgs {
    fn preset(&self) -> Option<Preset> {
        let Self { smoke, story, full } = *self;
        [(smoke, Preset::Smoke), (story, Preset::Story), (full, Preset::Full)]
            .into_iter()
            .find(|(wanted, _)| *wanted)
            .map(|(_, preset)| preset)
    }
}

/// Whether all cells were as predicted.
pub(super) async fn run(args: MatrixArgs) -> Result<bool> {
    let preset = args.preset.preset();
    let (trials, not_generated) = match preset {
        Some(preset) => preset.trials(),
        None => args.axes()?.trials(),
    };
    let trials = match args.sample {
        Some(count) => Preset::sample(trials, count, args.seed),
        None => trials,
    };
    let planting = args.planting()?;
    check(&trials, &not_generated)?;
    if args.list {
        for trial in &trials {
            if let Ok(expected) = trial.expectation() {
                say(format_args!(
                    "{trial}: {}, because {}",
                    expected.prediction.words(),
                    expected.because
                ));
            }
        }
        for one in &not_generated {
            say(format_args!("not generated, {}: {}", one.combinations, one.because));
        }
        say(format_args!("{} cells", trials.len()));
        if !planting.rows.is_empty() {
            super::plants::list(&planting.rows);
        }
        return Ok(true);
    }
    let parts = args.private.parts()?;
    if trials.iter().any(|trial| trial.fault == Some(FaultKind::Failpoint)) {
        need_failpoints(&parts.program).await?;
    }
    let matrix = Matrix {
        parts,
        trials,
        not_generated,
        preset,
        sample: args.sample,
        load: Load { path: args.path, ..Load::USUAL },
        seed: args.seed,
        planting,
        resume: args.resume,
        histories: None,
    };
    let histories = args.output.histories()?;
    let matrix = Matrix { histories, ..matrix };
    let output = args.output.open(MATRIX)?;
    let stop = stop_on_signal()?;
    output.take(Box::pin(matrix.run(&stop)).await?, &stop)
}

impl MatrixArgs {
    fn planting(&self) -> Result<Planting> {
        let (usual, seeds) = Preset::usual_plants(self.preset.preset(), self.sample.is_some());
        let usual = || usual.iter().copied().map(str::to_owned).collect();
        let names = self.plants.clone().unwrap_or_else(usual);
        Ok(Planting { rows: rows(&names)?, seeds: self.plant_seeds.unwrap_or(seeds) })
    }

    fn axes(&self) -> Result<Axes> {
        Ok(Axes {
            locks: locks(&self.locks)?,
            scopes: self.scopes.clone(),
            guards: self.guards.clone(),
            replicas: self.replicas.clone(),
            circumstances: self.circumstances.clone(),
            faults: faults(&self.faults)?,
            path: self.path,
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
                return Err(unknown("lock", name, &known_locks()));
            }
        }
    }
    Ok(locks)
}

fn faults(names: &[String]) -> Result<Vec<Option<FaultKind>>> {
    let mut faults = Vec::new();
    for name in names {
        match (name.as_str(), FaultKind::named(name)) {
            ("all", _) => faults.extend(FaultKind::ALL.map(Some)),
            ("none", _) => faults.push(None),
            (_, Some(fault)) => faults.push(Some(fault)),
            (_, None) => {
                return Err(unknown("fault", name, &known_faults()));
            }
        }
    }
    Ok(faults)
}

fn known_locks() -> String {
    possible(Lock::value_variants().iter().map(|lock| lock.name()))
}

fn known_faults() -> String {
    possible(std::iter::once("none").chain(FaultKind::known().map(FaultKind::name)))
}

fn possible<'a>(known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = std::iter::once("all").chain(known).collect();
    format!("[possible values: {}]", known.join(", "))
}

fn unknown(what: &str, name: &str, known: &str) -> Error {
    Error::Usage(format!("there is no {what} {name:?} {known}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn all_is_every_one_and_an_unknown_name_is_a_usage_error_that_lists_them() {
        let all = [String::from("all")];
        assert_eq!(locks(&all).expect("locks").len(), Lock::value_variants().len());
        assert_eq!(faults(&all).expect("faults").len(), FaultKind::ALL.len());
        let wrong = [String::from("earthquake")];
        for error in [locks(&wrong).expect_err("none"), faults(&wrong).expect_err("none")] {
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
