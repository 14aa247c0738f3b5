//! The log, on stderr.

use std::io::IsTerminal;

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts the log on stderr, as lines for people or as JSON. `filter` is in the form of
/// [`parse_log_filter`].
pub fn start_log(filter: &str, json: bool) {
    let lines = log_lines(json, std::io::stderr);
    let log = tracing_subscriber::registry().with(lines).with(log_filter(filter));
    // Fails only if a log was started before, which stays in use.
    let _started_before = log.try_init();
}

/// Reads a filter of the log: levels for all targets or for those that begin with a name, with
/// commas between them, such as `warn,seckill=debug`.
pub fn parse_log_filter(text: &str) -> Result<Targets, String> {
    if text.contains(['[', ']']) {
        return Err("must have levels and targets only, such as warn,seckill=debug: \
                    spans and fields are no filter here"
            .to_owned());
    }
    let mut filters = text.split(',').map(str::trim).filter(|filter| !filter.is_empty()).peekable();
    if filters.peek().is_none() {
        return Ok(Targets::new().with_default(LevelFilter::ERROR));
    }
    let filters = filters.collect::<Vec<_>>().join(",");
    filters.parse::<Targets>().map_err(|error| error.to_string())
}

/// The filter, or level INFO if it is none.
pub(super) fn log_filter(text: &str) -> Targets {
    parse_log_filter(text).unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO))
}

/// The lines of the log.
pub(super) fn log_lines<S, W>(json: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(writer);
    if json { lines.json().boxed() } else { lines.boxed() }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_has_levels_for_all_targets_and_for_those_that_begin_with_a_name() {
        let filter = parse_log_filter("warn, seckill=debug,audit=OFF,").expect("a filter");
        for (target, level, is_wanted) in [
            ("sqlx", Level::WARN, true),
            ("sqlx", Level::INFO, false),
            ("seckill::sale", Level::DEBUG, true),
            ("seckill", Level::TRACE, false),
            ("audit", Level::ERROR, false),
        ] {
            assert_eq!(filter.would_enable(target, &level), is_wanted, "{target} {level}");
        }
        assert!(
            parse_log_filter("seckill").expect("a target").would_enable("seckill", &Level::TRACE)
        );
        for none in ["", " ", ","] {
            let filter = parse_log_filter(none).expect("errors only");
            assert!(filter.would_enable("x", &Level::ERROR), "{none:?}");
            assert!(!filter.would_enable("x", &Level::WARN), "{none:?}");
        }
    }

    #[test]
    fn a_filter_by_spans_or_of_no_level_is_an_error() {
        for bad in ["[request]=debug", "seckill[request{id=1}]", "seckill=loud", "a=b=c"] {
            assert!(parse_log_filter(bad).is_err(), "{bad}");
        }
    }
}
