//! `ciphergram identity`.

use ciphergram_nic::federation::nodes::{draw_identity, write_identity};
use serde_json::json;

use crate::{
    args,
    failure::Failure,
    report::{report, shown},
};

pub(crate) fn run(args: &args::IdentityArgs) -> Result<(), Failure> {
    let identity = draw_identity()?;
    write_identity(&args.out.path, &identity)?;
    let node = identity.id().to_string();
    let lines = [
        format!("node {node}"),
        format!("{}  its secret key, for this node and for no one else", args.out.path.display()),
    ];
    report(args.report.json, &json!({"node": node, "out": shown(&args.out.path)}), &lines)
}
