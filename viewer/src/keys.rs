//! The keyboard, with Netron's keys where it has some.

use crate::canvas::Canvas;
use crate::export::{self, Export};
use crate::state::Viewer;
use egui::{Event, Key, Modifiers, Ui};

/// The action of a key.
type Deed = fn(&mut Viewer, &Ui);

/// A key of the table.
pub struct Binding {
    modifiers: Modifiers,
    keys: &'static [Key],
    /// The keys in words.
    pub words: &'static str,
    /// Their action.
    pub about: &'static str,
    /// Also while text is being written.
    always: bool,
    deed: Deed,
}

const NONE: Modifiers = Modifiers::NONE;
const CTRL: Modifiers = Modifiers::COMMAND;
const SHIFT: Modifiers = Modifiers::SHIFT;
const ALT: Modifiers = Modifiers::ALT;
const CTRL_SHIFT: Modifiers = Modifiers { shift: true, ..CTRL };
const CTRL_ALT: Modifiers = Modifiers { alt: true, ..CTRL };

macro_rules! bindings {
    ($($modifiers:ident [$($key:ident),*] $words:literal $about:literal $always:literal $deed:expr;)*) => {
        /// Every key. Those that belong together have the same words, and stand in the list once.
        pub const BINDINGS: &[Binding] = &[$(Binding {
            modifiers: $modifiers,
            keys: &[$(Key::$key),*],
            words: $words,
            about: $about,
            always: $always,
            deed: $deed,
        }),*];
    };
}

bindings! {
    NONE [Questionmark] "?" "this list" false |v, _| v.help = !v.help;
    SHIFT [Questionmark, Slash] "?" "this list" false |v, _| v.help = !v.help;
    NONE [ArrowLeft, OpenBracket] "Left, Right or [, ]" "the pass that changed something before, after" false |v, _| v.step(false);
    NONE [ArrowRight, CloseBracket] "Left, Right or [, ]" "" false |v, _| v.step(true);
    NONE [N] "N, P" "the next box that the pass changed, the one before" false |v, _| v.next_change(true);
    NONE [P] "N, P" "" false |v, _| v.next_change(false);
    NONE [B] "B" "before and after the pass side by side" false |v, _| v.compare = !v.compare;
    NONE [C] "C" "all of a long graph in columns" false |v, _| {
        v.columns = !v.columns;
        v.canvases.iter_mut().for_each(Canvas::fit_next);
    };
    NONE [L] "L" "layers as boxes, or every node by itself" false |v, _| v.turn_flat();
    CTRL [K] "Ctrl K" "edges from left to right, or from top to bottom" true |v, _| v.turn();
    NONE [F] "F, T" "show everything, show the top" false |v, _| v.show_all();
    NONE [T] "F, T" "" false |v, _| v.canvases.iter_mut().for_each(|c| c.fit(false));
    NONE [Plus, Equals] "+, - or Shift Up, Down" "zoom" false |v, _| v.canvases[0].magnify(1.25);
    SHIFT [ArrowUp, Plus] "+, - or Shift Up, Down" "" false |v, _| v.canvases[0].magnify(1.25);
    NONE [Minus] "+, - or Shift Up, Down" "" false |v, _| v.canvases[0].magnify(0.8);
    SHIFT [ArrowDown] "+, - or Shift Up, Down" "" false |v, _| v.canvases[0].magnify(0.8);
    SHIFT [Backspace] "Shift Backspace" "actual size" false |v, _| v.canvases[0].actual_size();
    CTRL [M] "Ctrl M" "the wheel zooms, or moves" true |v, _| v.canvases.iter_mut().for_each(|c| c.wheel_zooms = !c.wheel_zooms);
    NONE [W] "W A S D" "move" false |v, _| v.canvases[0].walk([0.0, 60.0]);
    NONE [S] "W A S D" "" false |v, _| v.canvases[0].walk([0.0, -60.0]);
    NONE [A] "W A S D" "" false |v, _| v.canvases[0].walk([60.0, 0.0]);
    NONE [D] "W A S D" "" false |v, _| v.canvases[0].walk([-60.0, 0.0]);
    ALT [ArrowLeft] "Alt Left, Alt Right" "back to where you were, and forward" false |v, _| v.canvases[0].camera.back();
    ALT [ArrowRight] "Alt Left, Alt Right" "" false |v, _| v.canvases[0].camera.forward();
    NONE [O] "O" "open or close the box: a layer, a fused group, a branch, a loop" false |v, _| {
        if let Some(key) = v.focus().map(str::to_string) {
            v.toggle(&key);
        }
    };
    NONE [Num1] "1 to 8" "what stands beside the graph: node, kernel, text ..." false |v, _| v.show_tab(0);
    NONE [Num2] "1 to 8" "" false |v, _| v.show_tab(1);
    NONE [Num3] "1 to 8" "" false |v, _| v.show_tab(2);
    NONE [Num4] "1 to 8" "" false |v, _| v.show_tab(3);
    NONE [Num5] "1 to 8" "" false |v, _| v.show_tab(4);
    NONE [Num6] "1 to 8" "" false |v, _| v.show_tab(5);
    NONE [Num7] "1 to 8" "" false |v, _| v.show_tab(6);
    NONE [Num8] "1 to 8" "" false |v, _| v.show_tab(7);
    CTRL [J] "Ctrl J" "forms of the kernel side by side, in the place of the graph" true |v, _| v.kernel_pane.wide = !v.kernel_pane.wide;
    CTRL [F] "Ctrl F" "search; Enter goes to the next one found" true |v, _| v.search.grab = true;
    CTRL [Enter] "Ctrl Enter" "what stands beside the graph" true |v, _| v.dock = !v.dock;
    CTRL [D] "Ctrl D" "attributes in the boxes" true |v, _| v.detail.attributes = !v.detail.attributes;
    CTRL [U] "Ctrl U" "names in the boxes" true |v, _| v.detail.names = !v.detail.names;
    CTRL [I] "Ctrl I" "constants in the boxes" true |v, _| v.detail.constants = !v.detail.constants;
    CTRL_SHIFT [E] "Ctrl Shift E" "write a picture of the window" true |v, ui| v.message = Some(export::write(v, ui.ctx(), Export::Png));
    CTRL_ALT [E] "Ctrl Alt E" "write the graph as SVG" true |v, ui| v.message = Some(export::write(v, ui.ctx(), Export::Svg));
    NONE [Escape] "Esc" "close this; back to the graph; end the search; select nothing" false |v, _| {
        match () {
            _ if v.help => v.help = false,
            _ if v.pages.shown.is_some() => v.pages.shown = None,
            _ if v.kernel_pane.wide => v.kernel_pane.wide = false,
            _ if !v.search.text.is_empty() => v.search.text.clear(),
            _ => v.select([]),
        }
    };
}

/// A key with what is held besides, as the list writes them: `B`, `Ctrl F`, `Ctrl Shift E`.
#[cfg(feature = "screenshot")]
pub(crate) fn parse(words: &str) -> Option<(Modifiers, Key)> {
    let mut words: Vec<&str> = words.split([' ', '+']).filter(|w| !w.is_empty()).collect();
    let key = Key::from_name(words.pop()?)?;
    let mut held = Modifiers::NONE;
    for word in words {
        held |= match word {
            "Ctrl" => CTRL,
            "Shift" => SHIFT,
            "Alt" => ALT,
            _ => return None,
        };
    }
    Some((held, key))
}

/// Does what the keys that were pressed say.
pub fn act(ui: &Ui, v: &mut Viewer) {
    let writing = ui.ctx().text_edit_focused();
    for b in BINDINGS.iter().filter(|b| b.always || !writing) {
        let pressed = |e: &Event, k: Key| {
            matches!(e, Event::Key { key, pressed: true, modifiers, .. }
                if *key == k && modifiers.matches_exact(b.modifiers))
        };
        let one = |k: &Key| ui.input_mut(|i| i.events.iter().any(|e| pressed(e, *k)) && i.consume_key(b.modifiers, *k));
        if b.keys.iter().any(one) {
            (b.deed)(v, ui);
        }
    }
}
