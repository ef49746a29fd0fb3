//! Times the viewer with a large network: `cargo run --release -p weft-viewer --example frames [-- NODES [OPENINGS]]`.
//! With a number of openings it only opens the network so many times, for a profiler.
//!
//! It compiles a network of residual blocks, and prints the time for opening it in layers, for frames while the graph
//! is moved (in layers, with one of them open, and every node by itself), for selections in every pane, for a frame
//! with all of it in sight, and for a step to another pass. Frames are the viewer's own CPU time, layout and shapes,
//! beside an empty frame.

use compiler::compile::{CompileOptions, compile};
use compiler::profile::DeviceProfile;
use compiler::text::parse_module;
use compiler::trace::{CompileTrace, Contents};
use egui::{Context, Event, Modifiers, MouseWheelSource, MouseWheelUnit, RawInput, Rect, TouchPhase, Ui, pos2, vec2};
use shaders_gen::Emitter;
use std::fmt::Write;
use std::time::{Duration, Instant};
use viewer::{Tab, Viewer, show};

/// Blocks of a stage: a network of 10,000 nodes has 25 stages.
const BLOCKS: usize = 100;

/// Blocks of convolution, ReLU, convolution and sum, some of them read again far down.
fn network(nodes: usize) -> String {
    let mut out = String::from(
        "const @w : f32[8,8,1,1] = splat(0.1)\ngraph @main(%x: f32[1,8,16,16]) -> (y: f32[1,8,16,16]) {\n",
    );
    out.push_str("  %w = const @w : f32[8,8,1,1]\n");
    let mut last = "%x".to_string();
    for block in 0..nodes / 4 {
        let (n, stage) = (4 * block, block / BLOCKS);
        let skip = if block % 10 == 9 { format!("%{}", n - 21) } else { last.clone() };
        let ty = ": f32[1,8,16,16]";
        let _ = writeln!(
            out,
            "  %{n} = conv {last}, %w {ty} !name(\"stage{stage}.block{block}.conv1\") !from(\"stage{stage}.block{block}.conv1\")"
        );
        let _ = writeln!(
            out,
            "  %{} = relu %{n} {ty} !name(\"stage{stage}.block{block}.relu\") !from(\"stage{stage}.block{block}.relu\")",
            n + 1
        );
        let _ = writeln!(
            out,
            "  %{} = conv %{}, %w {ty} !name(\"stage{stage}.block{block}.conv2\") !from(\"stage{stage}.block{block}.conv2\")",
            n + 2,
            n + 1
        );
        let _ = writeln!(
            out,
            "  %{} = add %{}, {skip} {ty} !name(\"stage{stage}.block{block}.add\") !from(\"stage{stage}.block{block}.add\")",
            n + 3,
            n + 2
        );
        last = format!("%{}", n + 3);
    }
    let _ = writeln!(out, "  return {last}\n}}");
    out
}

/// The shortest of several runs.
fn best(count: usize, mut run: impl FnMut()) -> Duration {
    let timed = (0..count).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    timed.min().unwrap_or_default()
}

fn frame(ctx: &Context, paint: &mut dyn FnMut(&mut Ui)) {
    frame_with(ctx, vec![], paint);
}

/// The time of a frame without that of turning its shapes into triangles, which a renderer needs besides.
fn frame_with(ctx: &Context, events: Vec<Event>, paint: &mut dyn FnMut(&mut Ui)) -> Duration {
    let size = Rect::from_min_size(pos2(0.0, 0.0), vec2(1600.0, 1000.0));
    let input = RawInput { screen_rect: Some(size), events, ..RawInput::default() };
    let start = Instant::now();
    let mut output = ctx.run_ui(input, |ui| paint(ui));
    let own = start.elapsed();
    // There is no renderer to hand the font's pictures to.
    output.textures_delta.clear();
    let _ = ctx.tessellate(output.shapes, output.pixels_per_point);
    own
}

/// The median of frames in which the graph is moved by the wheel, down and up again, and the longest.
fn panning(ctx: &Context, v: &mut Viewer) -> [Duration; 2] {
    let at = pos2(700.0, 500.0);
    let wheel = |y: f32| Event::MouseWheel {
        unit: MouseWheelUnit::Point,
        delta: vec2(0.0, y),
        phase: TouchPhase::Move,
        source: MouseWheelSource::Unknown,
        modifiers: Modifiers::NONE,
    };
    let mut times: Vec<Duration> = (0..120)
        .map(|i| {
            let events = vec![Event::PointerMoved(at), wheel(if i < 60 { -40.0 } else { 40.0 })];
            frame_with(ctx, events, &mut |ui| show(ui, v))
        })
        .collect();
    times.sort();
    [times[times.len() / 2], times[times.len() - 1]]
}

/// CPU time of this thread, which other programs on the machine do not lengthen; 0 where the system does not tell it.
fn cpu_time() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(told.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

/// The CPU time of a selection, of the frame behind it, and of the longest of ten later frames, over all panes.
fn selecting(ctx: &Context, v: &mut Viewer, nodes: &[String]) -> [Duration; 3] {
    let timed = |run: &mut dyn FnMut()| {
        let start = cpu_time();
        run();
        cpu_time() - start
    };
    let mut longest = [Duration::ZERO; 3];
    for place in 0..Tab::ALL.len() {
        v.select([]);
        v.show_tab(place);
        settle(ctx, v);
        let chosen = timed(&mut || v.select(nodes.iter().cloned()));
        let first = timed(&mut || frame(ctx, &mut |ui| show(ui, v)));
        settle(ctx, v);
        let later = (0..10).map(|_| timed(&mut || frame(ctx, &mut |ui| show(ui, v)))).max().unwrap_or_default();
        for (most, now) in longest.iter_mut().zip([chosen, first, later]) {
            *most = now.max(*most);
        }
    }
    longest
}

/// Frames until all is laid out and still.
fn settle(ctx: &Context, v: &mut Viewer) -> Duration {
    let start = Instant::now();
    loop {
        frame(ctx, &mut |ui| show(ui, v));
        if !v.busy() {
            return start.elapsed();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A viewer that has opened a trace; after what time the graph was to be seen, and all was still, with the graph before
/// the last pass for the marks of what that changed.
fn open(ctx: &Context, trace: CompileTrace) -> (Viewer, [Duration; 2]) {
    let start = Instant::now();
    let mut v = Viewer::new(trace).expect("the trace is whole");
    while !v.in_sight() {
        frame(ctx, &mut |ui| show(ui, &mut v));
        std::thread::sleep(Duration::from_millis(1));
    }
    frame(ctx, &mut |ui| show(ui, &mut v));
    let seen = start.elapsed();
    settle(ctx, &mut v);
    (v, [seen, start.elapsed()])
}

fn main() {
    let number = |place: usize| std::env::args().nth(place).and_then(|n| n.parse::<usize>().ok());
    let nodes = number(1).unwrap_or(10_000);
    let options = CompileOptions { record: true, ..CompileOptions::default() };
    let module = parse_module(&network(nodes)).expect("the text parses");
    let start = Instant::now();
    let compiled =
        compile(module, &options, &DeviceProfile::lavapipe(), &Emitter, &mut |_, _, _| ()).expect("it compiles");
    let trace = CompileTrace::new("blocks", &compiled, &options, &Emitter, Contents::Full).expect("a trace");
    println!("{nodes} nodes, compiled in {:.1?}", start.elapsed());
    let ctx = Context::default();
    if let Some(openings) = number(2) {
        let times: Vec<[Duration; 2]> = (0..openings.max(1)).map(|_| open(&ctx, trace.clone()).1).collect();
        let [seen, still] = [0, 1].map(|part| {
            let mut list: Vec<Duration> = times.iter().map(|t| t[part]).collect();
            list.sort();
            list[list.len() / 2]
        });
        println!("in sight after {seen:.1?}, at rest after {still:.1?}; medians of {} openings", times.len());
        return;
    }
    let layouts = viewer::drawing::time_layouts(&trace);
    println!("layout of the graph as it came: {:.1?}; of that after the passes: {:.1?}", layouts[0], layouts[1]);

    let empty = best(40, || frame(&ctx, &mut |_| ()));
    let (mut v, opened) = open(&ctx, trace);
    println!("opened: in sight after {:.1?}, at rest after {:.1?} (the trace is in memory)", opened[0], opened[1]);
    let print = |what: &str, t: Duration| {
        println!("{what}: {t:.2?}, {:.0} times an empty frame of {empty:.2?}", t.as_secs_f64() / empty.as_secs_f64());
    };
    let pan = |what: &str, v: &mut Viewer| {
        let [median, most] = panning(&ctx, v);
        print(&format!("moving {what}, median"), median);
        print(&format!("moving {what}, longest"), most);
    };
    pan("the folded graph", &mut v);
    v.toggle("layer stage3");
    settle(&ctx, &mut v);
    pan("it with a layer open", &mut v);
    let every: Vec<String> = v.trace().sources.iter().map(|s| s.name.clone()).collect();
    let layer: Vec<String> = every.iter().filter(|n| n.starts_with("stage3.")).cloned().collect();
    for (what, nodes) in [("nothing", &[][..]), ("a node", &every[5..6]), ("a layer", &layer), ("all", &every)] {
        let [chosen, first, later] = selecting(&ctx, &mut v, nodes);
        println!(
            "{what} selected ({} nodes): {chosen:.1?}, next frame {first:.1?}, later {later:.1?} (CPU, all panes)",
            nodes.len()
        );
    }
    let all = Instant::now();
    v.turn_flat();
    settle(&ctx, &mut v);
    println!("every node by itself after {:.1?}", all.elapsed());
    pan("every node by itself", &mut v);
    v.show_all();
    settle(&ctx, &mut v);
    (0..60).for_each(|_| frame(&ctx, &mut |ui| show(ui, &mut v)));
    print("a frame with all of it in sight", best(40, || frame(&ctx, &mut |ui| show(ui, &mut v))));
    // Both scenes are there: what is left is taking one in.
    v.step(false);
    settle(&ctx, &mut v);
    let back = best(4, || {
        v.step(true);
        frame(&ctx, &mut |ui| show(ui, &mut v));
        v.step(false);
        frame(&ctx, &mut |ui| show(ui, &mut v));
    });
    print("a step to another pass and its first frame", back / 2);
}
