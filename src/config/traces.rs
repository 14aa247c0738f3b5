//! Flags of traces.

use clap::Args;

/// Where traces go, and how many.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Address to which traces of requests are sent by OTLP over HTTP, such as
    /// `http://127.0.0.1:4318`. Needs a program that was built with `--features otlp`.
    #[arg(long, env = "OTLP_ENDPOINT", value_parser = endpoint)]
    pub otlp_endpoint: Option<String>,
    /// Share of the requests that are traced: 0 to 1. Raise it to see each request; a traced one
    /// costs more processor time.
    #[arg(long, env = "TRACE_RATIO", default_value_t = 0.01, value_parser = ratio)]
    pub trace_ratio: f64,
}

/// The whole address of the collector's endpoint for traces.
fn endpoint(text: &str) -> Result<String, String> {
    let Some(rest) = text.strip_prefix("http://") else {
        return Err("must begin with http:// (a collector on this machine adds TLS)".to_owned());
    };
    match rest.trim_end_matches('/').split_once('/') {
        _ if rest.starts_with('/') || rest.is_empty() => Err("has no host".to_owned()),
        None => Ok(format!("{}/v1/traces", text.trim_end_matches('/'))),
        Some(_) => Ok(text.to_owned()),
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "must be a number from 0 to 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_path_gets_that_of_traces() {
        for given in ["http://127.0.0.1:4318", "http://127.0.0.1:4318/"] {
            assert_eq!(endpoint(given), Ok("http://127.0.0.1:4318/v1/traces".to_owned()));
        }
        assert_eq!(endpoint("http://agent/otlp/traces"), Ok("http://agent/otlp/traces".to_owned()));
        for bad in ["127.0.0.1:4318", "https://agent:4318", "http://", "http:///v1/traces"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
        assert!(ratio("1.01").is_err() && ratio("NaN").is_err() && ratio("-0.1").is_err());
    }
}
