//! Runs cells in turn, or several at once, each on a deployment of its own. The private cluster is
//! replaced when its deployments are used up.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use loadtest_measure::database_settings::DatabaseSettings;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::machine::{Builds, Profiles, Versions, redis_version};
use loadtest_measure::print::{print_elapsed_during, print_status};
use loadtest_measure::server_settings::ServerSettings;
use tokio_util::sync::CancellationToken;

use crate::cell;
use crate::cell::CellReport;
use crate::cell_plan::{CellPlan, CellRequest};
use crate::cell_spec::CellSpec;
use crate::cluster::{Cluster, MAX_DEPLOYMENTS, ServerPrograms, blocking};
use crate::histories::Histories;
use crate::lock::ExtraServers;

/// A flag and its value.
pub type Flag = (&'static str, String);

/// What clusters are made of.
#[derive(Debug, Clone)]
pub struct ClusterSpec {
    /// Which servers.
    pub servers: ServerPrograms,
    /// The `seckill` program.
    pub program: PathBuf,
    /// The flags that have chosen them, each with its value, if they are not the usual ones.
    pub chosen: Vec<Flag>,
}

/// What runs cells.
#[derive(Debug)]
pub struct Runner {
    parts: ClusterSpec,
    needs: Vec<ExtraServers>,
    cluster: Cluster,
    /// Number of the next deployment.
    number: u16,
    versions: Versions,
    settings: ServerSettings,
}

impl Runner {
    /// Starts a cluster with what the locks of all these cells need.
    pub async fn start(
        parts: ClusterSpec,
        trials: &[CellSpec],
        stop: &CancellationToken,
    ) -> Result<Self> {
        let needs: Vec<ExtraServers> = trials.iter().map(|trial| trial.axes.lock.needs()).collect();
        // Before anything of it runs: what is put into its place later is another program.
        let program = parts.program.clone();
        let builds = tokio::task::spawn_blocking(move || Builds::read(&program)).await;
        let builds = builds.map_err(|error| Error::Setup(error.to_string()))??;
        let starting = Cluster::start(parts.servers, parts.program.clone(), &needs);
        let cluster = tokio::select! {
            cluster = print_elapsed_during("the servers start", starting) => cluster?,
            () = stop.cancelled() => return Err(Error::Interrupted),
        };
        let profiles = Profiles::read(&parts.program).await;
        let (versions, settings) = cluster.versions(builds, profiles).await?;
        Ok(Self { parts, needs, cluster, number: 0, versions, settings })
    }

    /// Cells, all at once on the same servers. Their histories stay as `histories` has it; `is_red`
    /// says of a report whether it is the last try of a red one.
    pub async fn run(
        &mut self,
        wanted: &[CellRequest<'_>],
        histories: Option<&Histories>,
        is_red: impl Fn(&CellReport) -> bool,
        stop: &CancellationToken,
    ) -> Vec<CellReport> {
        let mut plans: Vec<CellPlan> = wanted.iter().map(CellPlan::of).collect();
        for plan in &mut plans {
            plan.together = wanted.len() > 1;
            plan.history = histories.map(|all| all.file(plan.trial, plan.seed));
        }
        let mut reports = self.run_plans(&plans, stop).await;
        for (report, plan) in reports.iter_mut().zip(&plans) {
            if let (Some(histories), Some(file)) = (histories, &plan.history) {
                report.history = histories.keep_or_remove(file, is_red(report));
            }
        }
        reports
    }

    /// One cell; one that fails, or that `stop` ends, is reported as not run.
    pub async fn run_plan(&mut self, cell_plan: &CellPlan, stop: &CancellationToken) -> CellReport {
        self.run_plans(std::slice::from_ref(cell_plan), stop).await.remove(0)
    }

    /// Several cells at once, each on a deployment of its own.
    async fn run_plans(&mut self, plans: &[CellPlan], stop: &CancellationToken) -> Vec<CellReport> {
        let failed = |plan: &CellPlan, error: &Error| {
            CellReport::failed(plan.trial, plan.load.stock, error.to_string(), Duration::ZERO)
        };
        let first = match self.make_ready(plans.len()).await {
            Ok(first) => first,
            Err(error) => return plans.iter().map(|plan| failed(plan, &error)).collect(),
        };
        if plans.len() > 1 {
            print_status(format_args!("        {} cells run at the same time", plans.len()));
        }
        let runs = plans.iter().zip(first..).map(async |(plan, number)| {
            let run = cell::run(&self.cluster, number, plan);
            tokio::select! {
                report = print_elapsed_during(plan.trial, run) => report,
                () = stop.cancelled() => failed(plan, &Error::Interrupted),
            }
        });
        let mut reports = join_all(runs).await;
        for (report, plan) in reports.iter_mut().zip(plans) {
            if let Some(load) = &mut report.load {
                load.cost.shared = plan.together;
            }
        }
        reports
    }

    /// Whether the shared database acknowledges what it has not written yet; a restart ends that.
    pub async fn set_forgetful(&self, on: bool) -> Result<()> {
        let database = self.cluster.database.clone();
        blocking(move || database.set_forgetful(on)).await
    }

    /// Versions of all that took part so far.
    pub fn versions(&self) -> Versions {
        let known = self.cluster.lock_server_versions();
        Versions {
            zookeeper: known.zookeeper.get().or(self.versions.zookeeper.as_ref()).cloned(),
            etcd: known.etcd.get().or(self.versions.etcd.as_ref()).cloned(),
            nats: known.nats.get().or(self.versions.nats.as_ref()).cloned(),
            ..self.versions.clone()
        }
    }

    /// Settings of the servers that figures depend on.
    pub fn settings(&self) -> ServerSettings {
        self.settings.clone()
    }

    /// The shared servers run, and there is room for that many more deployments; the number of the
    /// first of them.
    async fn make_ready(&mut self, count: usize) -> Result<u16> {
        let count = u16::try_from(count).unwrap_or(MAX_DEPLOYMENTS);
        if self.number <= MAX_DEPLOYMENTS.saturating_sub(count) {
            self.cluster.restore_servers().await?;
        } else {
            self.versions = self.versions();
            let program = self.parts.program.clone();
            self.cluster = Cluster::start(self.parts.servers, program, &self.needs).await?;
            self.number = 0;
        }
        let first = self.number;
        self.number += count;
        Ok(first)
    }
}

impl Cluster {
    /// Versions of the servers, and the settings that figures depend on.
    async fn versions(
        &self,
        builds: Builds,
        profiles: Profiles,
    ) -> Result<(Versions, ServerSettings)> {
        let (server, settings) = self.settings().await?;
        // Those of ZooKeeper, etcd and NATS are known once a cell has needed one.
        let versions = Versions {
            loadtest: env!("CARGO_PKG_VERSION"),
            builds,
            profiles,
            database: server.version,
            redis: self.redis_version().await?,
            haproxy: self.haproxy_version().to_owned(),
            zookeeper: None,
            etcd: None,
            nats: None,
        };
        Ok((versions, settings))
    }

    /// The version of the shared Redis.
    pub async fn redis_version(&self) -> Result<String> {
        let redis = self.redis().clone();
        let info = blocking(move || redis.command(&["INFO", "server"])).await?;
        Ok(redis_version(&info))
    }

    /// What the database server is, and the settings of both servers.
    pub async fn settings(&self) -> Result<(DatabaseSettings, ServerSettings)> {
        let server = DatabaseSettings::read(&self.database_url("information_schema")).await?;
        let (redis, settings) =
            (self.redis().clone(), ServerSettings::default().with_database(&server));
        blocking(move || Ok((server, settings.with_redis(&redis)?))).await
    }
}
