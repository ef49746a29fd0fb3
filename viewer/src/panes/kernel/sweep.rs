//! All values of one choice: what each would cost by the estimate, and by a measurement where there is a device.

use super::editing::{Answer, Sweep};
use super::trying::{answer, ask, attempt_of};
use crate::canvas::colour::milliseconds;
use crate::state::Viewer;
use compiler::schedule::{Choose, InstrRef};
use compiler::text::{print_instruction, print_value};
use egui::{Align2, Color32, FontId, Rect, RichText, Sense, Spinner, Ui, pos2, vec2};

const ROW: f32 = 17.0;

/// Tries all values of the choice in line `line` of a schedule.
pub(super) fn start(v: &mut Viewer, lines: &[String], line: usize, choose: &Choose) {
    let mut values: Vec<_> = choose.of.iter().map(|value| (print_value(value), value)).collect();
    values.sort_by_key(|(text, _)| (text.parse::<i64>().unwrap_or(i64::MAX), text.clone()));
    let schedule = |value: &compiler::attr::Attr| {
        let mut lines = lines.to_vec();
        lines[line] = print_instruction(&InstrRef::new(Choose { value: value.clone(), ..choose.clone() }));
        lines.join("\n")
    };
    let tries = values.into_iter().map(|(text, value)| (text, attempt_of(v, schedule(value)))).collect();
    let (point, current) = (choose.point.to_string(), print_value(&choose.value));
    v.kernel_pane.edit.sweep = Some(Sweep { point, current, tries });
}

/// Times as multiples of the present schedule's: by the estimate, and measured.
fn ratios(a: &Answer) -> [Option<f64>; 2] {
    let Ok(o) = a else { return [None; 2] };
    let ratio = |[old, new]: [f64; 2]| (old > 0.0).then(|| new / old);
    [o.estimated.and_then(ratio), o.times.as_ref().ok().copied().and_then(ratio)]
}

/// Draws a row for each value; a click takes it.
pub(super) fn show(ui: &mut Ui, v: &mut Viewer) {
    let Some(sweep) = v.kernel_pane.edit.sweep.take() else { return };
    let answers: Vec<Option<Answer>> = sweep.tries.iter().map(|(_, a)| answer(ui, v, a)).collect();
    let done = answers.iter().flatten().count();
    let mut close = false;
    ui.horizontal(|ui| {
        ui.strong(format!("All values of {}", sweep.point));
        if done < answers.len() {
            ui.add(Spinner::new().size(12.0));
            ui.weak(format!("{done} of {}", answers.len()));
        }
        close = ui.small_button("Close").clicked();
    });
    let [weak, strong] = bars(ui.visuals().dark_mode);
    ui.horizontal(|ui| {
        ui.colored_label(weak, RichText::new("estimated").small());
        ui.colored_label(strong, RichText::new("measured").small());
        ui.weak(RichText::new("as multiples of the schedule that the trace has").small());
    });
    let all = answers.iter().flatten().flat_map(ratios).flatten();
    let most = all.fold(1.0, f64::max);
    let mut taken = None;
    for ((value, attempt), a) in sweep.tries.iter().zip(&answers) {
        let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width().min(520.0), ROW), Sense::click());
        let current = *value == sweep.current;
        if response.hovered() {
            ui.painter().rect_filled(rect, 2.0, ui.visuals().faint_bg_color);
        }
        // The schedule of the trace is once as slow as itself, whatever noise the clock has.
        let ratios = if current { [Some(1.0); 2] } else { a.as_ref().map_or([None; 2], ratios) };
        bar(ui, rect, (value, current), (a.as_ref(), ratios), most);
        response
            .widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, format!("{} {value}", sweep.point)));
        if response.on_hover_text(about(a.as_ref())).clicked() {
            taken = Some(attempt.clone());
        }
    }
    ui.separator();
    if let Some(attempt) = taken {
        v.kernel_pane.edit.text = attempt.schedule.clone();
        ask(v, attempt);
    }
    v.kernel_pane.edit.sweep = (!close).then_some(sweep);
}

fn bars(dark: bool) -> [Color32; 2] {
    match dark {
        true => [Color32::from_rgb(120, 140, 170), Color32::from_rgb(90, 170, 255)],
        false => [Color32::from_rgb(130, 150, 180), Color32::from_rgb(10, 100, 220)],
    }
}

type Tried<'a> = (Option<&'a Answer>, [Option<f64>; 2]);

fn bar(ui: &Ui, rect: Rect, (value, current): (&str, bool), (a, ratios): Tried<'_>, most: f64) {
    const NAME: f32 = 104.0;
    const TEXT: f32 = 110.0;
    let font = FontId::proportional(11.0);
    let ink = if current { ui.visuals().strong_text_color() } else { ui.visuals().text_color() };
    let name = if current { format!("{value} (now)") } else { value.to_string() };
    ui.painter().text(rect.left_center(), Align2::LEFT_CENTER, name, font.clone(), ink);
    let room = rect.width() - NAME - TEXT;
    for (k, (ratio, colour)) in ratios.iter().zip(bars(ui.visuals().dark_mode)).enumerate() {
        let Some(r) = ratio else { continue };
        let corner = pos2(rect.min.x + NAME, rect.min.y + 2.0 + 6.5 * k as f32);
        let size = vec2((r / most) as f32 * room, 5.5);
        ui.painter().rect_filled(Rect::from_min_size(corner, size), 1.0, colour);
    }
    let [estimated, measured] = ratios.map(|r| r.map_or("-".to_string(), |r| format!("{r:.2}")));
    let text = match a {
        None => "...".to_string(),
        Some(Err(_)) => "refused".to_string(),
        Some(Ok(_)) => format!("{estimated}   {measured}"),
    };
    let at = pos2(rect.max.x - TEXT + 8.0, rect.center().y);
    ui.painter().text(at, Align2::LEFT_CENTER, text, font, ink);
}

/// The tooltip: the times, or why there are none.
fn about(a: Option<&Answer>) -> String {
    match a {
        None => "Being tried".into(),
        Some(Err(why)) => why.message.clone(),
        Some(Ok(o)) => {
            let of = |word: &str, [old, new]: [f64; 2]| {
                let [old, new] = [old, new].map(|us| milliseconds(us / 1e3));
                format!("{word}: {old} now, {new} so")
            };
            let estimated = o.estimated.map_or("no estimate".into(), |t| of("estimated", t));
            let measured = o.times.as_ref().map_or_else(|why| format!("not measured: {why}"), |t| of("measured", *t));
            format!("{estimated}\n{measured}\nClick to take it")
        }
    }
}
