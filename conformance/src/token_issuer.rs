//! A token source that all processes of this machine share: a locked file per name.

use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

use distlock::BoxFuture;
use distlock::{LockError, LockName, Token, TokenIssuer};

/// The folder with the files. For tests: it blocks while another process draws a token.
#[derive(Debug, Clone)]
pub struct FileTokenIssuer(pub PathBuf);

impl FileTokenIssuer {
    fn next_of(&self, name: &LockName) -> io::Result<u64> {
        fs::create_dir_all(&self.0)?;
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let path = self.0.join(format!("{:016x}", hasher.finish()));
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file?;
        // The file lock ends with the file, so a process that dies in here blocks no other.
        file.lock()?;
        let mut last = String::new();
        file.read_to_string(&mut last)?;
        let next = last.trim().parse().unwrap_or(0) + 1;
        file.rewind()?;
        // A number never gets shorter, so the old one is overwritten whole.
        file.write_all(format!("{next}\n").as_bytes())?;
        Ok(next)
    }
}

impl TokenIssuer for FileTokenIssuer {
    fn next<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Token, LockError>> {
        Box::pin(async move {
            self.next_of(name).map(Token).map_err(|error| LockError::Backend(error.to_string()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_issuers_that_share_a_folder_never_issue_the_same_token() {
        let folder = std::env::temp_dir().join(format!("tokens-{}", uuid::Uuid::new_v4()));
        let name = LockName::new("lock:a").unwrap();
        let issued = std::thread::scope(|scope| {
            let issuers = [(); 4].map(|()| {
                let (tokens, name) = (FileTokenIssuer(folder.clone()), &name);
                scope.spawn(move || -> Vec<u64> {
                    (0..50).map(|_| tokens.next_of(name).unwrap()).collect()
                })
            });
            issuers.map(|issuer| issuer.join().unwrap())
        });
        assert!(issued.iter().all(|tokens| tokens.is_sorted()));
        let mut all = issued.concat();
        all.sort_unstable();
        assert_eq!(all, (1..=200).collect::<Vec<u64>>());
        fs::remove_dir_all(folder).unwrap();
    }
}
