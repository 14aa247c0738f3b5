//! What a run says of itself in its history, as far as rules depend on it.

use std::collections::BTreeMap;

use loadtest_load::history::{
    DEMANDS, FAULT, FENCED, History, LOCK_PER, LOCK_WAIT_MS, Mark, ONE_HOLDER_PER, ReadError,
};

use crate::setting::Scope;
use crate::stalls::Stalls;
use crate::verdict::Rule;

/// The phase of a fault's mark at its end.
const HEALED: &str = "healed";

/// The terms of one run.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Whether each order has to leave a fencing token.
    pub fenced: bool,
    /// For what one request at a time holds a lock, if the run's lock keeps requests apart.
    pub one_holder_per: Option<Scope>,
    /// For what there is a lock, if the run tells.
    pub lock_per: Option<Scope>,
    /// How long a request waits for its lock before it is refused, in nanoseconds, if known.
    pub lock_wait_ns: Option<u64>,
    /// Rules that are demanded besides those of every run.
    pub demands: Vec<Rule>,
    /// When the last fault had healed, in nanoseconds since the load began.
    pub healed_ns: Option<u64>,
    /// When the generator stood still.
    pub stalls: Stalls,
}

impl Terms {
    /// Reads the terms of a history.
    pub fn of_history(history: &History) -> Result<Self, ReadError> {
        let terms = Self::of(&history.begin.settings, &history.marks);
        terms.map_err(|why| ReadError::Broken { line: 1, why })
    }

    /// Those of a history with these settings and marks. A name that this program does not know is
    /// an error: what it stands for would not be judged.
    pub fn of(settings: &BTreeMap<String, String>, marks: &[Mark<'_>]) -> Result<Self, String> {
        let scope = |setting: &str| match settings.get(setting).map(String::as_str) {
            None => Ok(None),
            Some(name) => {
                let scope = [Scope::User, Scope::Voucher].into_iter().find(|it| it.name() == name);
                scope.map(Some).ok_or_else(|| format!("{setting} {name} is unknown"))
            }
        };
        let wait_ms = |text: &String| {
            let ms = text.parse::<u64>().ok().and_then(|ms| ms.checked_mul(1_000_000));
            ms.ok_or_else(|| format!("{LOCK_WAIT_MS} {text} is no time"))
        };
        let healed = marks.iter().filter(|mark| mark.what == FAULT && mark.phase == HEALED);
        let names = settings.get(DEMANDS).map_or("", String::as_str);
        let demand = |name| Rule::parse(name).ok_or_else(|| format!("the rule {name} is unknown"));
        let names = names.split(',').filter(|name| !name.is_empty());
        Ok(Self {
            fenced: settings.contains_key(FENCED),
            one_holder_per: scope(ONE_HOLDER_PER)?,
            lock_per: scope(LOCK_PER)?,
            lock_wait_ns: settings.get(LOCK_WAIT_MS).map(wait_ms).transpose()?,
            demands: names.map(demand).collect::<Result<_, _>>()?,
            healed_ns: healed.map(|mark| mark.t).max(),
            stalls: Stalls::of(marks),
        })
    }
}
