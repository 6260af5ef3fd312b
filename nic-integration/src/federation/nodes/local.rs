//! Node keys beside the scheme's key: those that the processes of one machine share, and those of one machine alone.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use ciphergram_he::{Job, job::AllowedNode, keys::beside};

use super::{
    Allowed, draw_identity, read_allowed, read_identity, read_node, write_allowed, write_identity,
    write_node,
};
use crate::{federation::Error, proto::NodeId};

/// The files of node keys in the folder of a scheme's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalNodes {
    /// The aggregator's identity.
    pub server: PathBuf,
    /// The aggregator's node key, for clients.
    pub server_node: PathBuf,
    /// The client's identity, or the one that the clients of one machine share.
    pub client: PathBuf,
    /// The list that lets these clients take part.
    pub allowed: PathBuf,
}

impl LocalNodes {
    /// Returns the files in a folder.
    #[must_use]
    pub fn of_folder(folder: &Path) -> Self {
        Self::found(|name| folder.join(name))
    }

    fn found(find: impl Fn(&str) -> PathBuf) -> Self {
        Self {
            server: find("server.identity"),
            server_node: find("server.node"),
            client: find("client.identity"),
            allowed: find("clients.allow"),
        }
    }

    /// Returns the files [`beside`] a key's file, for an aggregator that is at these addresses: on loopback, where the
    /// processes of one machine may share them, and elsewhere if they are the aggregator's or one client's and the list
    /// beside them says which client each node is.
    ///
    /// # Errors
    ///
    /// The first address of another machine, if it is known.
    pub fn with_key(key: &Path, addresses: &[SocketAddr]) -> Result<Self, Option<SocketAddr>> {
        let nodes = Self::found(|name| beside(key, name));
        let far = addresses.iter().find(|address| !address.ip().is_loopback());
        if (far.is_some() || addresses.is_empty()) && !nodes.are_of_one_machine() {
            return Err(far.copied());
        }
        Ok(nodes)
    }

    /// Returns whether they are the aggregator's or one client's, and the list beside them says of each node which
    /// client it is: none is shared.
    fn are_of_one_machine(&self) -> bool {
        let allowed = read_allowed(&self.allowed);
        let is_bound = allowed.is_ok_and(|allowed| allowed.values().all(Option::is_some));
        self.server.exists() != self.client.exists() && is_bound
    }

    /// Returns all of them.
    #[must_use]
    pub fn all(&self) -> [&Path; 4] {
        [&self.server, &self.server_node, &self.client, &self.allowed]
    }

    /// Draws node keys for an aggregator and for clients that share one, and writes them.
    ///
    /// # Errors
    ///
    /// A file exists or cannot be written; no randomness.
    pub fn draw(&self) -> Result<(), Error> {
        let (server, client) = (draw_identity()?, draw_identity()?);
        write_identity(&self.server, &server)?;
        write_node(&self.server_node, server.id())?;
        write_identity(&self.client, &client)?;
        write_allowed(&self.allowed, &Allowed::from([(client.id(), None)]))
    }

    /// Writes those of `former` that there are, or new ones if there is none.
    ///
    /// # Errors
    ///
    /// A file exists, or cannot be read or written; no randomness.
    pub fn take_over(&self, former: &Self) -> Result<(), Error> {
        if !former.all().iter().any(|path| path.exists()) {
            return self.draw();
        }
        for (from, to) in [(&former.server, &self.server), (&former.client, &self.client)] {
            if from.exists() {
                write_identity(to, &read_identity(from)?)?;
            }
        }
        if former.server_node.exists() {
            write_node(&self.server_node, read_node(&former.server_node)?)?;
        }
        if former.allowed.exists() {
            write_allowed(&self.allowed, &read_allowed(&former.allowed)?)?;
        }
        Ok(())
    }
}

/// Returns the nodes that a job allows, if it says which.
///
/// # Errors
///
/// One of them is no node key.
pub fn allowed_by(job: &Job) -> Result<Option<Allowed>, Error> {
    let node = |AllowedNode { node, client }: &AllowedNode| {
        let bad = |_| {
            let why = format!("the job allows {node:?}, which is no node key");
            ciphergram_he::Error::Limits { why }
        };
        Ok((node.parse::<NodeId>().map_err(bad)?, *client))
    };
    let nodes = job.limits().allow.as_ref();
    nodes.map(|nodes| nodes.iter().map(node).collect()).transpose()
}
