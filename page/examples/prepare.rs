//! Compiles an ONNX file for the profile `baseline` and packs its weights, as a page does, in a native process: what
//! the time of a page is measured against.
//!
//!     cargo build --release -p page --example prepare
//!     time target/release/examples/prepare squeezenet1_1.onnx

use bytes::Bytes;
use compiler::fault::Fault;
use page::{Files, Network, Request};
use serde_json::{Value, json};
use std::sync::Arc;

struct File(Bytes);

impl Files for File {
    fn read(&self, _file: usize, offset: u64, length: usize) -> Result<Bytes, Fault> {
        let at = offset as usize;
        if at + length > self.0.len() { Err("the file is shorter".into()) } else { Ok(self.0.slice(at..at + length)) }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: prepare MODEL.onnx")?;
    let file = Bytes::from(std::fs::read(path)?);
    let given = json!({ "name": "m.onnx", "size": file.len() });
    let request = json!({ "model": "m.onnx", "files": [given], "profile": "baseline", "dims": {}, "record": true });
    let request: Request = serde_json::from_value(request)?;
    let mut network = Network::compile(&request, Arc::new(File(file)), None, &mut |_, _, _| {})?;
    let files = network.files()?;
    let plan = files.iter().find(|f| f.path == "plan.json").ok_or("no plan.json")?;
    let plan: Value = serde_json::from_slice(&plan.bytes)?;
    let mut bytes = 0;
    for at in plan["buffers"].as_array().into_iter().flatten().filter_map(|b| b["weights"].as_u64()) {
        bytes += network.weights(at as usize)?.len();
    }
    println!("{bytes} bytes of weights");
    Ok(())
}
