//! Node keys: where `keygen` puts those for one machine, and which ones a command takes.
//!
//! On loopback `serve` and `join` find theirs beside the scheme's key. Anywhere else they must be
//! named.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use ciphergram_he::{Job, job::AllowedNode};
use ciphergram_nic::{
    federation::nodes::{
        Allowed, draw_identity, read_allowed, read_identity, read_node, write_allowed,
        write_identity, write_node,
    },
    proto::{Identity, NodeId},
};

use crate::{args, failure::Failure, files};

/// The aggregator's identity.
const SERVER: &str = "server.identity";
/// The aggregator's node key, for clients.
const SERVER_NODE: &str = "server.node";
/// The identity that the clients of one machine share.
const CLIENT: &str = "client.identity";
/// The list that lets the clients of one machine take part.
const ALLOWED: &str = "clients.allow";

/// Returns the files that [`write()`] makes.
pub(crate) fn files(folder: &Path) -> [PathBuf; 4] {
    [SERVER, SERVER_NODE, CLIENT, ALLOWED].map(|name| folder.join(name))
}

/// Writes node keys for an aggregator and for clients that share one: those that are in the folder `kept`, or new ones
/// if none is.
pub(crate) fn write(folder: &Path, kept: Option<&Path>) -> Result<(), Failure> {
    let [server_file, node_file, client_file, allowed_file] = files(folder);
    if let Some(former) = kept.map(files).filter(|former| former.iter().any(|path| path.exists())) {
        for (from, to) in [(&former[0], &server_file), (&former[2], &client_file)] {
            if from.exists() {
                write_identity(to, &read_identity(from)?)?;
            }
        }
        if former[1].exists() {
            write_node(&node_file, read_node(&former[1])?)?;
        }
        if former[3].exists() {
            write_allowed(&allowed_file, &read_allowed(&former[3])?)?;
        }
        return Ok(());
    }
    let (server, client) = (draw_identity()?, draw_identity()?);
    write_identity(&server_file, &server)?;
    write_node(&node_file, server.id())?;
    write_identity(&client_file, &client)?;
    Ok(write_allowed(&allowed_file, &Allowed::from([(client.id(), None)]))?)
}

/// The place that lists the nodes that may take part.
pub(crate) enum AllowList {
    /// In a file, for a number of clients.
    File(PathBuf, u16),
    /// In the job, for as long as it is the job.
    Job(Allowed),
}

impl AllowList {
    /// Returns the list that a server of `clients` goes by.
    ///
    /// # Errors
    /// There is none.
    fn of(args: &args::Serve, job: &Job, clients: u16) -> Result<Self, Failure> {
        match (&args.allow, &job.limits().allow) {
            (Some(path), _) => Ok(Self::File(path.clone(), clients)),
            (None, Some(nodes)) => settled(nodes).map(Self::Job),
            (None, None) => Ok(Self::File(beside(args, ALLOWED)?, clients)),
        }
    }

    /// Reads the list.
    ///
    /// # Errors
    /// It cannot be read, allows nobody, or one as a client that there is not.
    fn read(&self) -> Result<Allowed, Failure> {
        let (path, clients) = match self {
            Self::File(path, clients) => (path, *clients),
            Self::Job(nodes) => return Ok(nodes.clone()),
        };
        let allowed = read_allowed(path)?;
        let bound = allowed.iter().filter_map(|(node, client)| Some((node, (*client)?)));
        match bound.into_iter().find(|(_, client)| *client >= clients) {
            Some((node, client)) => Err(Failure::Work(format!(
                "{}: it allows node {node} as client {client}, but there are {clients} clients, numbered from 0",
                path.display()
            ))),
            None => Ok(allowed),
        }
    }

    /// Reads the list again.
    ///
    /// # Errors
    /// As [`read`](Self::read); or it is the job's.
    pub(crate) fn read_again(&self) -> Result<Allowed, Failure> {
        match self {
            Self::File(..) => self.read(),
            Self::Job(_) => {
                let text =
                    "the allow list is the job's, and only one of serve --allow FILE is read again";
                Err(Failure::Work(text.into()))
            }
        }
    }
}

fn beside(args: &args::Serve, name: &str) -> Result<PathBuf, Failure> {
    default(&args.agreed.key, &[args.listen], name, "--identity FILE and --allow FILE")
}

/// Reads the aggregator's own key, and the nodes that may take part among `clients`.
pub(crate) fn server(
    args: &args::Serve,
    job: &Job,
    clients: u16,
) -> Result<(Identity, AllowList, Allowed), Failure> {
    let identity = args.identity.clone().map_or_else(|| beside(args, SERVER), Ok)?;
    let list = AllowList::of(args, job, clients)?;
    let allowed = list.read()?;
    Ok((read_identity(&identity)?, list, allowed))
}

/// Returns the nodes that a job allows.
fn settled(nodes: &[AllowedNode]) -> Result<Allowed, Failure> {
    let node = |AllowedNode { node, client }: &AllowedNode| {
        let id = node.parse::<NodeId>();
        let bad = |_| Failure::Work(format!("the job allows {node:?}, which is no node key"));
        Ok((id.map_err(bad)?, *client))
    };
    nodes.iter().map(node).collect()
}

/// The node keys of a client.
pub(crate) struct ClientNodes {
    pub(crate) identity: Identity,
    /// The aggregator's.
    pub(crate) server: NodeId,
    /// The option or the file that it is from.
    pub(crate) server_source: String,
}

/// Reads a client's own key, and the aggregator's, which is at one of these addresses.
pub(crate) fn client(args: &args::Join, addresses: &[SocketAddr]) -> Result<ClientNodes, Failure> {
    let options = "--identity FILE and --server-key KEY";
    let beside = |name| default(&args.agreed.key, addresses, name, options);
    let identity = args.identity.clone().map_or_else(|| beside(CLIENT), Ok)?;
    let (server, server_source) = match args.server_key {
        Some(node) => (node, "--server-key".into()),
        None => {
            let path = beside(SERVER_NODE)?;
            (read_node(&path)?, path.display().to_string())
        }
    };
    Ok(ClientNodes { identity: read_identity(&identity)?, server, server_source })
}

/// Returns the file of this name beside the scheme's key. On loopback alone: processes of one
/// machine may share node keys.
fn default(
    key: &Path,
    addresses: &[SocketAddr],
    name: &str,
    options: &str,
) -> Result<PathBuf, Failure> {
    match addresses.iter().find(|address| !address.ip().is_loopback()) {
        None => Ok(files::beside(key, name)),
        Some(address) => Err(Failure::Misuse(format!(
            "{address} is not on this machine: say {options} (`ciphergram identity` makes node keys)"
        ))),
    }
}
