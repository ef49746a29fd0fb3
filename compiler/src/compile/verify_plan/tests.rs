//! Breaks good plans on purpose: the verifier must name the step that reads the wrong value, and the step that
//! overwrote it.

use super::*;
use crate::compile::callees::Joined;
use crate::compile::{CompileOptions, GroupKind, compile};
use crate::plan::{BufferView, Call, Collected, Loop, StandInEmitter, Trips};
use crate::profile::DeviceProfile;
use crate::text::parse_module;

/// A plan and its reference.
struct Planned {
    plan: Plan,
    main: Function,
    values: PlanValues,
}

impl Planned {
    fn of(text: &str) -> Planned {
        let m = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
        let (profile, emitter) = (DeviceProfile::baseline(), StandInEmitter { version: 0 });
        let options = CompileOptions { verify: true, ..CompileOptions::default() };
        let c = compile(m, &options, &profile, &emitter, &mut |_, _, _| ()).unwrap_or_else(|e| panic!("{e}"));
        let Joined { module, main, .. } = Joined::of(c.module);
        let is_view = |group: usize| c.groups[group].kind == GroupKind::View;
        let values = PlanValues::of(&module, &main, is_view, &c.plan.kernels);
        Planned { plan: c.plan, main, values }
    }
    fn verify(&self) -> Result<(), String> {
        verify_plan(&self.plan, &self.main, &self.values).map_err(|e| e.to_string())
    }
    /// What is in buffer `from` goes to buffer `to`, as if their lifetimes did not overlap.
    fn share(&mut self, from: BufferIndex, to: BufferIndex) {
        self.verify().unwrap_or_else(|e| panic!("before it was broken: {e}"));
        assert_ne!(from, to);
        let mut change = |b: &mut BufferIndex| *b = if *b == from { to } else { *b };
        steps_of(&mut self.plan.steps, &mut change);
        for f in &mut self.plan.functions {
            steps_of(&mut f.body, &mut change);
            f.buffers.iter_mut().for_each(&mut change);
        }
        self.plan.outputs.iter_mut().for_each(|v| change(&mut v.buffer));
    }
    /// The error says where the wrong value is read, and who left it there.
    fn breaks(&self, reads: &str, wrote: &str) {
        let text = self.verify().expect_err("the verifier finds nothing");
        assert!(text.contains(reads) && text.contains(wrote), "`{text}` should say `{reads}` and `{wrote}`");
    }
    fn the_loop(&self) -> &Loop {
        let found = self.plan.all_steps().into_iter().find_map(|s| if let Step::Loop(l) = s { Some(l) } else { None });
        found.expect("a loop")
    }
}

fn steps_of(steps: &mut [Step], change: &mut impl FnMut(&mut BufferIndex)) {
    fn view(v: &mut BufferView, change: &mut impl FnMut(&mut BufferIndex)) {
        change(&mut v.buffer);
    }
    for step in steps {
        match step {
            Step::Gpu(list) => list.iter_mut().flat_map(|d| &mut d.buffers).for_each(|b| change(&mut b.0)),
            Step::Host(h) => h.inputs.iter_mut().chain(&mut h.outputs).for_each(|v| view(v, change)),
            Step::Copy { from, to } => [from, to].into_iter().for_each(&mut *change),
            Step::Branch(b) => {
                view(&mut b.condition, change);
                steps_of(&mut b.then, change);
                steps_of(&mut b.otherwise, change);
            }
            Step::Loop(l) => {
                let read = if let Trips::Read(v) = &mut l.trips { Some(v) } else { None };
                let views = read.into_iter().chain(&mut l.begin).chain(&mut l.go_on).chain(&mut l.index);
                views.for_each(|v| view(v, change));
                l.carried.iter_mut().flat_map(|c| [&mut c.now, &mut c.next]).for_each(&mut *change);
                for Collected { row, all, .. } in &mut l.collected {
                    view(row, change);
                    change(all);
                }
                steps_of(&mut l.body, change);
            }
            Step::Call(Call { arguments, results, .. }) => {
                let handed = arguments.iter_mut().chain(results).flat_map(|h| [&mut h.from, &mut h.to]);
                handed.for_each(&mut *change);
            }
        }
    }
}

/// The buffers that the dispatches of a list of steps write, in order.
fn written(p: &Planned, steps: &[Step]) -> Vec<BufferIndex> {
    let lists = steps.iter().filter_map(|s| if let Step::Gpu(list) = s { Some(list) } else { None });
    let bound = lists.flatten().flat_map(|d| p.plan.kernels[d.kernel].emitted.bindings.iter().zip(&d.buffers));
    bound.filter(|(b, _)| b.access == Access::Write).map(|(_, target)| target.0).collect()
}

const WHILE: &str = "const @most : f32[] = [9.0]\nconst @one : f32[4] = [1.0, 1.0, 1.0, 1.0]\n\
    graph @main(%x: f32[4], %y: f32[4], %q: f32[4]) -> (a: f32[4], b: f32[4], c: f32[4]) {\n  %most = const @most\n  \
    %one = const @one\n  %u = softmax %q {axes=[0]} : f32[4]\n  %s = reduce %x {kind=max, axes=[0]} : f32[]\n  %c0 = less %s, %most : bool[]\n  \
    %0, %1 = loop _, %c0, %x, %y {while=true} : f32[4], f32[4] (%i: i64[], %a: f32[4], %b: f32[4]) {\n    \
    %t = softmax %u {axes=[0]} : f32[4]\n    %v = add %a, %t : f32[4]\n    %w = softmax %v {axes=[0]} : f32[4]\n    \
    %z = softmax %w {axes=[0]} : f32[4]\n    %r = reduce %z {kind=max, axes=[0]} : f32[]\n    \
    %go = less %r, %most : bool[]\n    yield %go, %b, %z\n  }\n  %3 = softmax %u {axes=[0]} : f32[4]\n  return %0, %1, %3\n}\n";

#[test]
fn a_carried_value_in_the_slot_of_the_condition() {
    let mut p = Planned::of(WHILE);
    let l = p.the_loop();
    let (now, condition) = (l.carried[1].now, l.begin.as_ref().expect("a condition").buffer);
    p.share(now, condition);
    p.breaks("(loop ", "a copy of buffer");
}

#[test]
fn a_slot_that_the_body_of_a_loop_reuses_too_early() {
    let mut p = Planned::of(WHILE);
    let body = written(&p, &p.the_loop().body);
    let outer = written(&p, &p.plan.steps)[0];
    let inner =
        *body.iter().find(|&&b| !p.the_loop().carried.iter().any(|c| c.next == b)).expect("a value of the body");
    p.share(inner, outer);
    p.breaks(".body.0, dispatch 0", ".body.0, dispatch");
}

#[test]
fn a_loop_whose_carried_values_share_a_buffer() {
    let mut p = Planned::of(WHILE);
    let (a, b) = (p.the_loop().carried[0].next, p.the_loop().carried[1].next);
    p.share(a, b);
    p.breaks("(loop ", "keeps two things in buffer");
}

#[test]
fn a_side_of_a_branch_that_overwrites_what_is_read_behind_it() {
    let mut p = Planned::of(
        "graph @main(%c: bool[], %x: f32[4,4]) -> (y: f32[4,4]) {\n  %a = softmax %x {axes=[1]} : f32[4,4]\n  \
         %r = if %c : f32[4,4] {\n    %b = softmax %x {axes=[0]} : f32[4,4]\n    %d = matmul %b, %x : f32[4,4]\n    \
         %e = softmax %d {axes=[0]} : f32[4,4]\n    yield %e\n  } {\n    yield %x\n  }\n  \
         %f = matmul %r, %a : f32[4,4]\n  return %f\n}\n",
    );
    let (before, side) = (written(&p, &p.plan.steps)[0], {
        let found = p.plan.steps.iter().find_map(|s| if let Step::Branch(b) = s { Some(&b.then) } else { None });
        written(&p, found.expect("a branch"))[0]
    });
    p.share(side, before);
    p.breaks("reads `a`", ".then.0, dispatch 0");
}

#[test]
fn a_host_function_in_place_of_what_is_read_later() {
    let mut p = Planned::of(
        "graph @main(%x: f32[4,4]) -> (y: f32[4,4], z: f32[4,4]) {\n  %a = softmax %x {axes=[1]} : f32[4,4]\n  \
         %b = call_host @f %a {dtypes=[f32], shapes=[[4,4]], on_device=true, in_place=[0]} : f32[4,4]\n  \
         %c = matmul %a, %x : f32[4,4]\n  return %b, %c\n}\n",
    );
    let copied =
        p.plan.steps.iter().find_map(|s| if let Step::Copy { from, to } = s { Some((*from, *to)) } else { None });
    let (from, to) = copied.expect("a copy of what is read later");
    p.share(to, from);
    p.breaks("reads `a`", "(host step ");
}

#[test]
fn a_call_whose_buffer_is_one_that_its_caller_needs() {
    let mut p = Planned::of(
        "entry @main\nconst @zero : i64[] = [0]\nconst @one : i64[] = [1]\n\
         graph @f(%n: i64[], %x: f32[4,4]) -> f32[4,4] {\n  %zero = const @zero\n  %c = greater %n, %zero\n  \
         %r = if %c : f32[4,4] {\n    %one = const @one\n    %m = sub %n, %one\n    %h = softmax %x {axes=[0]} : f32[4,4]\n    \
         %i = call @f %m, %h : f32[4,4]\n    %j = matmul %i, %h\n    yield %j\n  } {\n    yield %x\n  }\n  return %r\n}\n\
         graph @main(%n: i64[], %x: f32[4,4]) -> (y: f32[4,4]) {\n  %a = softmax %x {axes=[1]} : f32[4,4]\n  \
         %0 = call @f %n, %x : f32[4,4]\n  %1 = matmul %0, %a : f32[4,4]\n  return %1\n}\n",
    );
    let own = written(&p, &p.plan.steps)[0];
    let branch =
        p.plan.functions[0].body.iter().find_map(|s| if let Step::Branch(b) = s { Some(&b.then) } else { None });
    let of_function = written(&p, branch.expect("a branch"))[0];
    p.share(of_function, own);
    p.breaks("reads `a`", "(call ");
}
