//! `--tune`: how a process sends and receives datagrams.

use std::str::FromStr;

use ciphergram_nic::proto::path::MAX_PATHS;

/// The largest number of each kind.
const MOST: u16 = 16;

/// Sockets, threads and waiting of a process's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tune {
    /// Source ports that each flow's datagrams are sprayed over.
    pub(crate) paths: u16,
    /// Flows that messages are dealt to.
    pub(crate) split: u16,
    /// Pipelines, each with sockets and a thread of its own.
    pub(crate) pipelines: u16,
    /// Polls the sockets instead of sleeping.
    pub(crate) poll: bool,
}

impl Default for Tune {
    fn default() -> Self {
        Self { paths: 1, split: 1, pipelines: 1, poll: false }
    }
}

impl Tune {
    /// Returns it for a server, which answers at the ports that clients send from.
    ///
    /// # Errors
    /// It has a number of paths.
    pub(crate) fn of_server(self) -> Result<Self, String> {
        match (self.paths, self.split) {
            (1, 1) => Ok(self),
            _ => Err("--tune: paths and split are of join: a server answers at its clients' ports"
                .into()),
        }
    }
}

impl FromStr for Tune {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut tune = Self::default();
        for word in text.split(',') {
            let (name, number) = word.split_once('=').unwrap_or((word, ""));
            let field = match name {
                "poll" if number.is_empty() => {
                    tune.poll = true;
                    continue;
                }
                "paths" => &mut tune.paths,
                "split" => &mut tune.split,
                "pipelines" => &mut tune.pipelines,
                _ => {
                    return Err(
                        "expected paths=N, split=N, pipelines=N and poll, separated by commas"
                            .into(),
                    );
                }
            };
            let found = number.parse().ok().filter(|number| (1..=MOST).contains(number));
            *field = found.ok_or_else(|| format!("{name} is a number from 1 to {MOST}"))?;
        }
        if usize::from(tune.paths * tune.split) > MAX_PATHS {
            let Self { paths, split, .. } = tune;
            return Err(format!("paths={paths},split={split}: no more than {MAX_PATHS} in all"));
        }
        Ok(tune)
    }
}
