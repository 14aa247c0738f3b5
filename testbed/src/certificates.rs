//! A certificate for a server on 127.0.0.1, and the authority that vouches for it.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use crate::bed_state::{BedState, write_private};
use crate::error::{Error, Result};
use crate::probe::Probe;
use crate::process::{Process, ProcessSpec};

/// Clients refuse an authority that is also the server's certificate, so there are two.
const AUTHORITY: &str = "CN = testbed\n[extensions]\nbasicConstraints = critical,CA:TRUE\n";
const SERVER: &str = "CN = 127.0.0.1\n[extensions]\nbasicConstraints = critical,CA:FALSE\n\
                      subjectAltName = IP:127.0.0.1,DNS:localhost\n";

/// Files in PEM.
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    /// What clients have to trust.
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificates {
    /// Makes both, valid for a day.
    pub(crate) fn create(bed: &Arc<BedState>, name: &str) -> Result<Self> {
        let (authority, authority_key) = issue(bed, &format!("{name}-ca"), AUTHORITY, vec![])?;
        let by = ["-CA".into(), authority.clone().into(), "-CAkey".into(), authority_key.into()];
        let (certificate, key) = issue(bed, &format!("{name}-tls"), SERVER, by.into())?;
        Ok(Self { authority, certificate, key })
    }
}

/// A certificate and its key; self-signed unless the arguments name an issuer.
fn issue(
    bed: &Arc<BedState>,
    name: &str,
    subject: &str,
    signed_by: Vec<OsString>,
) -> Result<(PathBuf, PathBuf)> {
    let file = |suffix: &str| bed.path(&format!("{name}{suffix}"));
    let (config, key, certificate) = (file(".cnf"), file("-key.pem"), file(".pem"));
    let head = "[req]\nprompt = no\ndistinguished_name = name\nx509_extensions = extensions\n";
    write_private(&config, &format!("{head}[name]\n{subject}"))?;
    let fixed = "req -x509 -days 1 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc";
    let mut args: Vec<OsString> = fixed.split(' ').map(Into::into).collect();
    args.extend(["-config".into(), config.into(), "-keyout".into(), key.clone().into()]);
    args.extend(["-out".into(), certificate.clone().into()]);
    args.extend(signed_by);
    let process_spec = ProcessSpec {
        name: format!("{name}-openssl"),
        program: bed.programs.need("openssl", "openssl")?,
        args,
        env: vec![],
        probe: Probe::Exit,
    };
    let done = Process::start(bed, process_spec)?;
    // It only shows that it works; what a failure says is in the error.
    fs::remove_file(done.log_path()).map_err(Error::io("remove a log"))?;
    Ok((certificate, key))
}
