//! Where the time of an order goes, as the replicas of a deployment measure it: the means of their
//! histograms, each from one reading of `/metrics` to the next.

use std::collections::BTreeMap;

use loadtest_lab::deployment::Deployment;
use loadtest_load::api;
use loadtest_load::client::{Connection, Target};
use loadtest_measure::error::{Error, Result};

/// How long a replica may take to answer.
const READ_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
/// The histogram of the parts of a purchase, distinguished by a label.
const PART_HISTOGRAM: &str = "seckill_order_part_seconds";
/// The whole purchase, and the whole request around it.
const WHOLE_HISTOGRAMS: [(&str, &str); 2] =
    [("seckill_order_seconds", "purchase"), ("seckill_http_request_seconds", "request")];

/// What is neither the purchase nor its token: routing, reading, writing.
pub(super) const HTTP: &str = "http";

/// Sum and count of each histogram so far.
#[derive(Debug, Default)]
pub struct Parts(BTreeMap<String, [f64; 2]>);

impl Parts {
    /// Asks all replicas.
    pub async fn read(deployment: &Deployment) -> Result<Self> {
        let mut parts = Self::default();
        for replica in deployment.replicas() {
            let target = Target::parse(replica.base_url())?;
            let page = api::metrics(&mut Connection::new(target, READ_TIMEOUT)).await;
            parts.add(&page.map_err(|error| Error::Setup(error.to_string()))?);
        }
        Ok(parts)
    }

    /// Adds what a page in the text format of Prometheus says.
    fn add(&mut self, page: &str) {
        for line in page.lines() {
            let Some((key, value)) = line.rsplit_once(' ') else { continue };
            let (Some((part, which)), Ok(value)) = (part_of(key), value.parse::<f64>()) else {
                continue;
            };
            self.0.entry(part).or_default()[which] += value;
        }
    }

    /// The mean of each since then, in milliseconds, and what is left for HTTP.
    pub fn since(&self, earlier: &Self) -> BTreeMap<String, f64> {
        let mean = |(part, [sum, count]): (&String, &[f64; 2])| {
            let [sum_before, count_before] = earlier.0.get(part).copied().unwrap_or_default();
            let count = count - count_before;
            (count > 0.0).then(|| (part.clone(), (sum - sum_before) / count * 1000.0))
        };
        let mut means: BTreeMap<_, _> = self.0.iter().filter_map(mean).collect();
        let [request, purchase, token] = ["request", "purchase", "token"].map(|of| means.get(of));
        if let (Some(request), Some(purchase)) = (request, purchase) {
            let http = request - purchase - token.copied().unwrap_or_default();
            means.insert(HTTP.to_owned(), http);
        }
        means
    }
}

/// Which part a sum (0) or count (1) is of.
fn part_of(key: &str) -> Option<(String, usize)> {
    let (name, labels) = key.split_once('{').unwrap_or((key, ""));
    let (name, which) = match name.strip_suffix("_sum") {
        Some(name) => (name, 0),
        None => (name.strip_suffix("_count")?, 1),
    };
    if name == PART_HISTOGRAM {
        let (_, rest) = labels.split_once("part=\"")?;
        return Some((rest.split('"').next()?.to_owned(), which));
    }
    let (_, part) = WHOLE_HISTOGRAMS.into_iter().find(|(whole, _)| *whole == name)?;
    Some((part.to_owned(), which))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_of_the_time_between_two_readings() {
        let page = |lock_sum, lock_count| {
            format!(
                "# TYPE seckill_order_part_seconds histogram\n\
                 seckill_order_part_seconds_bucket{{part=\"lock\",le=\"0.1\"}} 7\n\
                 seckill_order_part_seconds_sum{{part=\"lock\"}} {lock_sum}\n\
                 seckill_order_part_seconds_count{{part=\"lock\"}} {lock_count}\n\
                 seckill_order_seconds_sum 2\nseckill_order_seconds_count 4\n\
                 seckill_http_request_seconds_sum 3\nseckill_http_request_seconds_count 3\n\
                 distlock_wait_seconds_sum{{kind=\"redisson\"}} 7\n"
            )
        };
        let (mut first, mut second) = (Parts::default(), Parts::default());
        first.add(&page(1.0, 100));
        second.add(&page(1.5, 200));
        let means = second.since(&first);
        assert_eq!(means, BTreeMap::from([("lock".to_owned(), 5.0)]), "the others stood still");
        let means = second.since(&Parts::default());
        assert!((means["purchase"] - 500.0).abs() < 1e-9);
        let request = means["request"];
        assert!((request - 1000.0).abs() < 1e-9, "{request}");
        assert!((means[HTTP] - 500.0).abs() < 1e-9, "no token was looked at: {means:?}");
        assert_eq!(means.len(), 4, "nothing of other histograms: {means:?}");
    }
}
