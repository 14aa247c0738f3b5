//! What the cells of a matrix are the product of, and the combinations that are no cells.

use std::collections::BTreeMap;

use loadtest_judge::setting::{Guards, Scope};
use serde::Serialize;

use crate::cell_axes::{CellAxes, PurchaseMode};
use crate::cell_spec::CellSpec;
use crate::faults::FaultKind;
use crate::lock::Lock;
use crate::predict::Scenario;
use crate::topology::Topology;

/// What the cells are the product of.
#[derive(Debug, Clone)]
pub struct Axes {
    /// Locks.
    pub locks: Vec<Lock>,
    /// What they are held for.
    pub scopes: Vec<Scope>,
    /// With and without the database's guards.
    pub guards: Vec<Guards>,
    /// Numbers of replicas.
    pub replicas: Vec<u16>,
    /// What happens around the locked section.
    pub scenarios: Vec<Scenario>,
    /// Faults; `None` is no fault.
    pub faults: Vec<Option<FaultKind>>,
    /// Servers.
    pub topologies: Vec<Topology>,
    /// When replicas answer.
    pub mode: PurchaseMode,
}

/// Combinations that are not generated, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotGenerated {
    /// The reason.
    pub because: String,
    /// How many.
    pub combinations: usize,
}

/// Leaves out the cells whose packets this machine cannot lose, if there is a reason why not.
pub fn leave_out_packet_loss(
    (mut trials, mut not_generated): (Vec<CellSpec>, Vec<NotGenerated>),
    why_not: impl FnOnce() -> Option<String>,
) -> (Vec<CellSpec>, Vec<NotGenerated>) {
    let loses = |trial: &CellSpec| matches!(trial.fault, Some(FaultKind::LosePackets(_)));
    let combinations = trials.iter().filter(|trial| loses(trial)).count();
    if combinations > 0
        && let Some(because) = why_not()
    {
        trials.retain(|trial| !loses(trial));
        not_generated.push(NotGenerated { because, combinations });
    }
    (trials, not_generated)
}

impl Axes {
    /// All cells, each once, and what is none.
    pub fn trials(&self) -> (Vec<CellSpec>, Vec<NotGenerated>) {
        let (mut trials, mut skipped) = (Vec::new(), BTreeMap::<&'static str, usize>::new());
        for axes in self.places() {
            for &fault in &self.faults {
                for &scenario in &self.scenarios {
                    for &topology in &self.topologies {
                        let trial = CellSpec { axes, scenario, fault, topology };
                        match trial.supports_mode(self.mode).and_then(|()| trial.expectation()) {
                            Ok(_) if !trials.contains(&trial) => trials.push(trial),
                            Ok(_) => {}
                            Err(because) => *skipped.entry(because).or_default() += 1,
                        }
                    }
                }
            }
        }
        let not_generated = skipped
            .into_iter()
            .map(|(because, combinations)| NotGenerated {
                because: because.to_owned(),
                combinations,
            })
            .collect();
        (trials, not_generated)
    }

    fn places(&self) -> Vec<CellAxes> {
        let mut places = Vec::new();
        for &guards in &self.guards {
            for &scope in &self.scopes {
                for &replicas in &self.replicas {
                    for &lock in &self.locks {
                        places.push(CellAxes { lock, scope, guards, replicas });
                    }
                }
            }
        }
        places
    }
}
