// Drives the compiler's page as a reader would, and tells the server what it saw.
import { compiled, weights } from "./compiler.js";
import { one } from "./one.js";
import { open } from "./runner.js";
import { $, drive, drop, expect, idle, page, put, sentence, until, values } from "./seen.js";

/** Takes a form of a network of the zoo, and waits. */
async function zoo(name) {
  $("zoo").append(new Option(name, name));
  $("zoo").value = name;
  $("zoo").onchange();
  $("ask").requestSubmit();
  await idle();
}
/** What is downloaded by a click, as a file's name and content. */
async function downloaded(id) {
  const kept = [], real = HTMLAnchorElement.prototype.click;
  HTMLAnchorElement.prototype.click = function () { kept.push([this.download, objects.get(this.href)]); };
  $(id).click();
  await idle();
  HTMLAnchorElement.prototype.click = real;
  return kept[0];
}

/** A trace that the command wrote. */
async function trace() {
  await drop("command.trace", await (await fetch("command.trace")).arrayBuffer());
  expect("a trace of the command is shown", $("error").hidden && !$("panes").hidden);
  await until(() => $("frame").contentDocument?.querySelector("#graph > *"));
  expect("it is that trace", /branch/.test($("frame").contentDocument.getElementById("model").textContent));
  await drop("broken.trace", "this is no trace");
  expect("a broken trace is a sentence", $("error").textContent.length > 10);
}

/** One compilation for two lengths: the kernels read them from a small buffer. */
async function lengths() {
  $("sizes").value = "n=1..64";
  await drop("open.weft", await (await fetch("open.weft")).text());
  await until(() => !$("compile").disabled);
  expect("an open size is compiled", $("error").hidden && !$("resize").hidden);
  const { files, plan } = compiled();
  expect("kernels take sizes from a buffer", plan.kernels.some((k) => k.sizeBytes > 0));
  const of = (path) => files.find((f) => f.path === path).bytes;
  const texts = plan.kernels.map((k) => new TextDecoder().decode(of(k.file)));
  for (const n of [5, 64]) {
    $("now").value = `n=${n}`;
    $("resize").requestSubmit();
    await idle();
    expect(`a run of ${n}`, $("error").hidden && compiled().plan.inputs[0].shape[0] === n);
    await page();
    const { network } = await values({ plan: compiled().plan, weights, texts }, `open-${n}/`);
    network.destroy();
  }
  $("now").value = "n=65";
  $("resize").requestSubmit();
  await idle();
  expect("a size beyond the range is a sentence", /65/.test($("error").textContent));
  $("sizes").value = "";
}

/** The report with its times, and the trace. */
async function report() {
  $("report").click();
  await idle();
  expect("the report is made", $("error").hidden && !$("panes").hidden);
  const inside = () => $("frame").contentDocument;
  await until(() => inside()?.querySelector("#graph > *"));
  expect("the report has its model and its passes", inside().getElementById("model").textContent && inside().querySelectorAll("#passes *").length > 5);
  const [name, times] = await downloaded("times");
  const { dispatches } = JSON.parse(await times.text());
  expect("times are downloaded", name.endsWith(".times.json") && dispatches.length > 0 && dispatches.every((d) => d.us >= 0 && d.kernel));
  const [traceName, trace] = await downloaded("trace");
  expect("a trace is downloaded", traceName.endsWith(".trace"));
  await put("network.trace", await trace.arrayBuffer());
}
/** An ONNX file of so many nodes that no compiler has. */
function unsupported(count) {
  const field = (n, content) => {
    const bytes = typeof content === "string" ? [...new TextEncoder().encode(content)] : content.flat();
    return [8 * n + 2, bytes.length & 127 | 128, bytes.length >> 7, ...bytes];
  };
  const node = (_, i) => field(1, [field(1, `v${i}`), field(2, `v${i + 1}`), field(3, `n${i}`), field(4, `NoSuchOp${i}`)]);
  const tensor = field(2, field(1, [8, 1, ...field(2, field(1, [8, 2]))]));
  const graph = [...Array.from({ length: count }, node), field(2, "g"), field(11, [field(1, "v0"), tensor]), field(12, [field(1, `v${count}`), tensor])];
  return Uint8Array.from([8, 8, ...field(8, [16, 17]), ...field(7, graph)]);
}
async function failures() {
  await drop("broken.onnx", "this is no model");
  expect("a file that is no model is a sentence", /broken\.onnx: /.test($("error").textContent));
  await drop("empty.weft", "graph");
  expect("a text that is no model is a sentence", /empty\.weft: /.test($("error").textContent));
  const nodes = Array.from({ length: 40 }, (_, i) => `  %${i + 1} = no_such_op_${i} %${i}`).join("\n");
  await drop('<img src=x onerror="document.title=1">.weft', `graph @main(%0: f32[2]) -> ("y": f32[2]) {\n${nodes}\n  return %40\n}`);
  expect("a hostile name is text", $("error").textContent.includes("<img") && !document.querySelector("#error img") && document.title !== "1");
  await drop("forty.onnx", unsupported(40));
  expect("all 40 unsupported nodes are named", [...Array(40).keys()].every((i) => $("error").textContent.includes(`NoSuchOp${i}`)));
  $("sizes").value = "nothing";
  $("ask").requestSubmit();
  await idle();
  expect("a wrong size is a sentence", /NAME=SIZE/.test($("error").textContent));
  $("sizes").value = "";
  $("zoo").value = "resnet50";
  $("zoo").onchange();
  $("ask").requestSubmit();
  await until(() => !$("cancel").hidden);
  $("cancel").click();
  await idle();
  expect("a compilation is cancelled", $("error").textContent === "cancelled");
}

async function lost() {
  const { files, plan } = compiled();
  const of = (path) => files.find((f) => f.path === path).bytes;
  const network = await open({ plan, weights, texts: plan.kernels.map((k) => new TextDecoder().decode(of(k.file))) });
  network.device.destroy();
  await network.device.lost;
  expect("a lost device is a sentence", /the device was lost/.test(await sentence(() => network.run({}))));
}

/** The page in a frame of a phone's width. */
async function framed(address, look) {
  const frame = Object.assign(document.createElement("iframe"), { src: address });
  frame.style.width = "360px";
  document.body.append(frame);
  const inside = (id) => frame.contentDocument.getElementById(id);
  await until(() => frame.contentDocument?.getElementById("made")?.hidden === false && !inside("compile").disabled);
  await look(inside);
  const wide = () => frame.contentDocument.documentElement.scrollWidth;
  expect(`a phone's width is enough for ${address}: ${wide()}`, wide() <= 360);
  frame.remove();
}
async function phone() {
  await framed("without.html?model=squeezenet1_1:smallest", async (inside) => {
    expect("without WebGPU that is said", /offers no WebGPU/.test(inside("error").textContent));
    expect("and it is compiled", /kernels for the profile/.test(inside("about").textContent));
  });
  await framed("index.html?model=convolutions.weft", async (inside) => {
    inside("time").click();
    await until(() => !inside("run").disabled);
    inside("wide").querySelector("tbody tr").click();
    expect("a phone shows a kernel", inside("error").hidden && /@compute/.test(inside("wgsl").textContent));
    inside("report").click();
    await until(() => inside("frame").contentDocument?.querySelector("#graph .box"));
  });
}

const violated = [];
addEventListener("securitypolicyviolation", (e) => violated.push(`${e.violatedDirective} ${e.blockedURI}`));
// Addresses of objects are known by what they are made of.
const objects = new Map(), make = URL.createObjectURL;
URL.createObjectURL = (o) => { const url = make.call(URL, o); objects.set(url, o); return url; };

drive(async () => {
  await until(() => $("state").textContent === "ready for a model" || !$("error").hidden);
  expect("the page starts", $("error").hidden && $("zoo").options.length > 5);
  expect("there is a profile of this adapter", $("profile").value === "this adapter");
  await trace();
  for (const name of ["convolutions", "branch", "loop", "while", "rows", "quantised", "host", "decided"]) {
    const text = await (await fetch(`${name}.weft`)).text();
    await one(name, () => drop(`${name}.weft`, text));
  }
  const part = async (name) => (await fetch(name)).arrayBuffer();
  await one("beside.onnx", async () => drop("beside.onnx", await part("beside.onnx"), new File([await part("beside.onnx.data")], "beside.onnx.data")));
  await drop("beside.onnx", await part("beside.onnx"));
  expect("missing data are named", /`beside\.onnx\.data`: drop both together/.test($("error").textContent));
  await drop("a.txt", "", new File([], "b.txt"));
  expect("files without a model are refused", /none of these files is a model/.test($("error").textContent));
  await drop("host.weft", await (await fetch("host.weft")).text());
  await page();
  const onHost = [...document.querySelectorAll("tbody tr")].filter((r) => /on the host/.test(r.lastChild.textContent));
  expect("a node of the host is said to be there, with its time", onHost.length === 1 && Number(onHost[0].cells[1].textContent) > 0);
  await one("squeezenet1_1:smallest", () => zoo("squeezenet1_1:smallest"));
  await report();
  await lengths();
  await lost();
  await failures();
  await phone();
  expect(`the policy holds (${violated})`, violated.length === 0);
});
