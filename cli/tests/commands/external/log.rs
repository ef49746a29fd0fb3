//! oneDNN's own log, as `DNNL_VERBOSE=2` prints it:
//! `onednn_verbose,exec,cpu,matmul,brg:avx512_core,undef,LAYOUTS,ATTRIBUTES,,5x192:192x192:5x192,0.0158`.

/// A line of the log.
struct Line<'l> {
    /// `exec`, `create:cache_hit`, ...
    event: &'l str,
    /// The primitive: `convolution`.
    kind: &'l str,
    /// The sizes that it was made for.
    sizes: &'l str,
}

/// What the library did in a process.
pub struct Log<'l>(Vec<Line<'l>>);

impl<'l> Log<'l> {
    /// Reads the lines of the log among others.
    pub fn of(text: &'l str) -> Log<'l> {
        let line = |l: &'l str| {
            let fields: Vec<&str> = l.strip_prefix("onednn_verbose,")?.split(',').collect();
            let [event, "cpu", kind, .., sizes, _time] = fields[..] else { return None };
            Some(Line { event, kind, sizes })
        };
        Log(text.lines().filter_map(line).collect())
    }
    fn events<'s>(&'s self, event: &'s str) -> impl Iterator<Item = &'s Line<'l>> {
        self.0.iter().filter(move |l| l.event.starts_with(event))
    }
    /// Multiply-accumulates of all convolutions and products that ran.
    pub fn macs(&self) -> u64 {
        let of = |l: &Line| match l.kind {
            "convolution" => convolution(l.sizes),
            "matmul" => product(l.sizes),
            _ => 0,
        };
        self.events("exec").map(of).sum()
    }
    /// How many convolutions and products ran.
    pub fn anchors(&self) -> usize {
        self.events("exec").filter(|l| ["convolution", "matmul"].contains(&l.kind)).count()
    }
    /// How many primitives were made.
    pub fn made(&self) -> usize {
        self.events("create").count()
    }
    /// How many tensors of this size were copied from one layout to another.
    pub fn copies(&self, sizes: &str) -> usize {
        self.events("exec").filter(|l| l.kind == "reorder" && l.sizes == sizes).count()
    }
}

/// `mb1_g32ic32oc32_ih56oh56kh3sh1dh0ph1_iw56ow56kw3sw1dw0pw1`: images, channels out, channels in of a group, and for
/// each axis the results and the taps.
fn convolution(sizes: &str) -> u64 {
    let number = |name: &str| {
        let found = sizes.match_indices(name).find(|(at, _)| {
            let behind = sizes[at + name.len()..].starts_with(|c: char| c.is_ascii_digit());
            let before = sizes[..*at].chars().next_back();
            behind && !before.is_some_and(|c| c.is_ascii_alphabetic())
        });
        let digits = sizes[found?.0 + name.len()..].split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u64>().ok()
    };
    let all = |names: &[&str]| names.iter().map(|n| number(n).unwrap_or(1)).product::<u64>();
    all(&["mb", "oc", "ic", "od", "oh", "ow", "kd", "kh", "kw"]) / number("g").unwrap_or(1)
}

/// `12x197x64:12x64x197:12x197x197`: the data, the weights, and perhaps the result.
fn product(sizes: &str) -> u64 {
    let shapes: Vec<Vec<u64>> =
        sizes.split(':').map(|s| s.split('x').map(|n| n.parse().expect("a size")).collect()).collect();
    let ([lead @ .., m, k], [.., n]) = (&shapes[0][..], &shapes[1][..]) else { panic!("{sizes}") };
    lead.iter().product::<u64>() * m * k * n
}

#[test]
fn multiply_accumulates_are_read_from_the_log() {
    let log = Log::of(
        "onednn_verbose,info,cpu,runtime:OpenMP
onednn_verbose,create:cache_miss,cpu,convolution,jit,forward_inference,a b,,alg:convolution_direct,mb2_g4ic8oc12_iw9ow7kw3sw1dw0pw0,1
onednn_verbose,exec,cpu,convolution,jit,forward_inference,a b,,alg:convolution_direct,mb2_g4ic8oc12_iw9ow7kw3sw1dw0pw0,1
onednn_verbose,exec,cpu,convolution,jit,forward_inference,a b,,alg:convolution_direct,mb1_ic3oc5_ih8oh8kh3sh1dh0ph1_iw6ow6kw3sw1dw0pw1,1
onednn_verbose,exec,cpu,matmul,brg,undef,a b,attr-post-ops:binary_add:f32:2 ,,2x3x4:1x4x5:2x3x5,1
onednn_verbose,exec,cpu,reorder,jit,undef,a b,,,12x2x3,1",
    );
    assert_eq!(log.macs(), 2 * 12 * 2 * 7 * 3 + 5 * 3 * 8 * 6 * 9 + 2 * 3 * 4 * 5);
    assert_eq!((log.anchors(), log.made(), log.copies("12x2x3"), log.copies("2x3")), (3, 1, 1, 0));
}
