//! A mint of fencing tokens that all processes of this machine share: a locked file per name.

use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

use async_trait::async_trait;
use distlock::{LockError, LockName, Mint, Token};

/// The folder with the files. For tests: it blocks while another process mints.
#[derive(Debug, Clone)]
pub struct FileMint(pub PathBuf);

impl FileMint {
    fn next_of(&self, name: &LockName) -> io::Result<u64> {
        fs::create_dir_all(&self.0)?;
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let path = self.0.join(format!("{:016x}", hasher.finish()));
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file?;
        // Ends with the file, so a minter that dies in here stops nobody.
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

#[async_trait]
impl Mint for FileMint {
    async fn next(&self, name: &LockName) -> Result<Token, LockError> {
        self.next_of(name).map(Token).map_err(|error| LockError::Backend(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minters_who_share_a_folder_never_make_the_same_token() {
        let folder = std::env::temp_dir().join(format!("mint-{}", uuid::Uuid::new_v4()));
        let name = LockName::new("lock:a").unwrap();
        let minted = std::thread::scope(|scope| {
            let minters = [(); 4].map(|()| {
                let (mint, name) = (FileMint(folder.clone()), &name);
                scope.spawn(move || -> Vec<u64> {
                    (0..50).map(|_| mint.next_of(name).unwrap()).collect()
                })
            });
            minters.map(|minter| minter.join().unwrap())
        });
        assert!(minted.iter().all(|tokens| tokens.is_sorted()));
        let mut all = minted.concat();
        all.sort_unstable();
        assert_eq!(all, (1..=200).collect::<Vec<u64>>());
        fs::remove_dir_all(folder).unwrap();
    }
}
