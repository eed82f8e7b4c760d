//! `ringway lab view`: the page of a run.

use super::{Answer, Failure};
use crate::output;
use crate::view::page::page;
use crate::view::read::read;
use crate::view::{PAGE, ViewError};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Arguments of `ringway lab view`.
#[derive(Clone, Debug, Default)]
pub struct ViewArgs {
    /// Folder that a run has written.
    pub dir: PathBuf,
    /// The page; `view.html` in the folder by default.
    pub out: Option<PathBuf>,
}

/// Writes the page of a run.
pub fn view(args: &ViewArgs) -> Result<Answer, Failure> {
    let failed = |error: ViewError| {
        let file = args.dir.join(error.file);
        Failure::Failed(vec![format!("{}: {}", file.display(), error.what)])
    };
    let scene = read(&args.dir).map_err(failed)?;
    let page = page(&scene);
    let out = args.out.clone().unwrap_or_else(|| args.dir.join(PAGE));
    if let Some(folder) = out.parent().filter(|folder| *folder != Path::new("")) {
        output::folder(folder)?;
    }
    output::write(&out, page.as_bytes())?;
    let (packets, hops, left_out) = (scene.packets.len(), scene.hops.len(), scene.network.left_out);
    let mut text = format!("{packets} packets, {hops} hops, {} bytes\n", page.len());
    if left_out > 0 {
        text += &format!("{left_out} later steps are left out: a page has the first {hops}\n");
    }
    text += &format!("{}\n", out.display());
    let json = json!({
        "dir": args.dir,
        "page": out,
        "bytes": page.len(),
        "packets": packets,
        "hops": hops,
        "left_out": left_out,
    });
    Ok(Answer { text, json, ..Answer::default() })
}
