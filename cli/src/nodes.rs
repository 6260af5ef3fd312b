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

/// Draws node keys for an aggregator and for clients that share one, and writes them.
pub(crate) fn write(folder: &Path) -> Result<(), Failure> {
    let [server_file, node_file, client_file, allowed_file] = files(folder);
    let (server, client) = (draw_identity()?, draw_identity()?);
    write_identity(&server_file, &server)?;
    write_node(&node_file, server.id())?;
    write_identity(&client_file, &client)?;
    Ok(write_allowed(&allowed_file, &Allowed::from([(client.id(), None)]))?)
}

/// Reads the aggregator's own key, and the nodes that may take part.
pub(crate) fn server(args: &args::Serve, job: &Job) -> Result<(Identity, Allowed), Failure> {
    let beside =
        |name| default(&args.agreed.key, &[args.listen], name, "--identity FILE and --allow FILE");
    let identity = args.identity.clone().map_or_else(|| beside(SERVER), Ok)?;
    let allowed = match (&args.allow, &job.limits().allow) {
        (Some(path), _) => read_allowed(path)?,
        (None, Some(nodes)) => settled(nodes)?,
        (None, None) => read_allowed(&beside(ALLOWED)?)?,
    };
    Ok((read_identity(&identity)?, allowed))
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
