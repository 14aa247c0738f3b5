//! Runs cells one after the other, each on a deployment of its own, on a private cluster that is
//! made anew when it has had enough of them.

use std::path::PathBuf;
use std::time::Duration;

use testbed::Flavor;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::judge::audit::{Reader, Server};
use crate::lab::cell::{self, CellReport};
use crate::lab::cluster::{Cluster, MAX_DEPLOYMENTS, blocking};
use crate::lab::histories::Histories;
use crate::lab::lock::Needs;
use crate::lab::machine::{Builds, Profiles, Versions, version_of};
use crate::lab::staged::{Staged, Wanted};
use crate::lab::trial::Trial;
use crate::report::repeat::Flag;
use crate::report::settings::Settings;
use crate::say::remind;

/// What clusters are made of.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Which database server.
    pub flavor: Flavor,
    /// The `seckill` program.
    pub program: PathBuf,
    /// The flags that have chosen them, each with its value, if they are not the usual ones.
    pub chosen: Vec<Flag>,
}

/// What runs cells.
#[derive(Debug)]
pub struct Runner {
    parts: Parts,
    needs: Vec<Needs>,
    cluster: Cluster,
    /// Of the next deployment.
    number: u16,
    versions: Versions,
    settings: Settings,
}

impl Runner {
    /// Starts a cluster with what the locks of all these cells need.
    pub async fn start(parts: Parts, trials: &[Trial], stop: &CancellationToken) -> Result<Self> {
        let needs: Vec<Needs> = trials.iter().map(|trial| trial.place.lock.needs()).collect();
        // Before anything of it runs: what is put into its place later is another program.
        let program = parts.program.clone();
        let builds = tokio::task::spawn_blocking(move || Builds::read(&program)).await;
        let builds = builds.map_err(|error| Error::Setup(error.to_string()))??;
        let starting = Cluster::start(parts.flavor, parts.program.clone(), &needs);
        let cluster = tokio::select! {
            cluster = remind("the servers start", starting) => cluster?,
            () = stop.cancelled() => return Err(Error::Interrupted),
        };
        let profiles = Profiles::read(&parts.program).await;
        let (versions, settings) = cluster.versions(builds, profiles).await?;
        Ok(Self { parts, needs, cluster, number: 0, versions, settings })
    }

    /// One cell, whose history stays as `histories` has it; `is_red` says of its report whether it
    /// is the last try of a red one.
    pub async fn run(
        &mut self,
        wanted: &Wanted<'_>,
        histories: Option<&Histories>,
        is_red: impl FnOnce(&CellReport) -> bool,
        stop: &CancellationToken,
    ) -> CellReport {
        let mut staged = Staged::of(wanted);
        staged.history = histories.map(|all| all.file(staged.trial, staged.seed));
        let mut report = self.run_staged(&staged, stop).await;
        if let (Some(histories), Some(file)) = (histories, &staged.history) {
            report.history = histories.settle(file, is_red(&report));
        }
        report
    }

    /// One cell; one that fails, or that `stop` ends, is reported as not run.
    pub async fn run_staged(&mut self, staged: &Staged, stop: &CancellationToken) -> CellReport {
        let failed = |error: Error| {
            let stock = staged.load.stock;
            CellReport::failed(staged.trial, stock, error.to_string(), Duration::ZERO)
        };
        if let Err(error) = self.make_ready().await {
            return failed(error);
        }
        let number = self.number;
        self.number += 1;
        tokio::select! {
            report = remind(staged.trial, cell::run(&self.cluster, number, staged)) => report,
            () = stop.cancelled() => failed(Error::Interrupted),
        }
    }

    /// Whether the shared database acknowledges what it has not written yet; a restart ends that.
    pub async fn set_forgetful(&self, on: bool) -> Result<()> {
        let database = self.cluster.database.clone();
        blocking(move || database.set_forgetful(on)).await
    }

    /// Versions of all that took part so far.
    pub fn versions(&self) -> Versions {
        let zookeeper = self.cluster.zookeeper_version().map(str::to_owned);
        Versions {
            zookeeper: zookeeper.or_else(|| self.versions.zookeeper.clone()),
            ..self.versions.clone()
        }
    }

    /// Settings of the servers that figures depend on.
    pub fn settings(&self) -> Settings {
        self.settings.clone()
    }

    /// The shared servers run, and there is room for one more deployment.
    async fn make_ready(&mut self) -> Result<()> {
        if self.number < MAX_DEPLOYMENTS {
            return self.cluster.mend().await;
        }
        self.versions = self.versions();
        let program = self.parts.program.clone();
        self.cluster = Cluster::start(self.parts.flavor, program, &self.needs).await?;
        self.number = 0;
        Ok(())
    }
}

impl Cluster {
    /// Versions of the servers, and the settings that figures depend on.
    async fn versions(&self, builds: Builds, profiles: Profiles) -> Result<(Versions, Settings)> {
        let (server, settings) = self.settings().await?;
        // That of ZooKeeper is known once a cell has needed one.
        let versions = Versions {
            loadtest: env!("CARGO_PKG_VERSION"),
            builds,
            profiles,
            database: server.version,
            redis: version_of(self.redis_pid(), "redis-server", "--version").await,
            haproxy: self.haproxy_version().to_owned(),
            zookeeper: None,
        };
        Ok((versions, settings))
    }

    /// What the database server is, and the settings of both servers.
    pub async fn settings(&self) -> Result<(Server, Settings)> {
        let server =
            Reader::connect(&self.database_url("information_schema")).await?.server().await?;
        let (redis, settings) = (self.redis().clone(), Settings::default().with_database(&server));
        blocking(move || Ok((server, settings.with_redis(&redis)?))).await
    }
}
