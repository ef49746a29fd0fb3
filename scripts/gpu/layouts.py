#!/usr/bin/env python3
"""layouts.py --weft BIN [--model resnet101] [--amp fp16] [--batch 16,32,64] [--device navi31,bmg,ada] [--layout nchw,nhwc] [--keep DIR]
A network in one layout and in another: a markdown table with a row for each device, batch and layout.
  estimate   what Weft estimates of all dispatches together, in ms, with its parts (`hidden` is what runs beside the rest and is taken off)
  transposes of activations; those of weights are folded
  the rest   as `report.py --help` says

  layouts.py --weft target/release/weft --batch 16"""
import argparse, json, pathlib, re, shutil, subprocess, sys, tempfile
import report
FIGURES = ('share', 'perload', 'conflict', 'sector', 'wide', 'fill', 'flight', 'prefetch')

def estimate(device, weft, model, amp, batch, layout):
    """{'total': ms, and each part of it}"""
    r = report.on(device, weft, 'explain', model, '--device', '0', '--target', device, '--amp', amp, '--batch', batch, '--layout', layout, '-v', stdout=subprocess.PIPE)
    m = re.search(r'^estimated: ([\d.]+) us \((.*)\)$', r.stdout.decode(), re.M)
    if not m: sys.exit(f'{device} {model} {layout}: explain gives no estimate: {r.stderr.decode()[-400:]}')
    return {'total': float(m[1])/1e3} | {name: float(us)/1e3 for name, us in (p.rsplit(' ', 1) for p in m[2].split(', '))}

if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--weft', required=True); p.add_argument('--model', default='resnet101'); p.add_argument('--amp', default='fp16'); p.add_argument('--batch', default='16,32,64')
    p.add_argument('--device', default='navi31,bmg,ada'); p.add_argument('--layout', default='nchw,nhwc'); p.add_argument('--keep')
    o = p.parse_args(); tmp = tempfile.TemporaryDirectory(); base = pathlib.Path(o.keep or tmp.name)
    print(f"{o.model}, amp {o.amp}\n\n| device | batch | layout | estimate, ms | parts | transposes | {' | '.join(FIGURES)} |\n|{'---|'*(6+len(FIGURES))}", flush=True)
    for d in o.device.split(','):
        for b in o.batch.split(','):
            for layout in o.layout.split(','):
                out = base/d/f'{o.model}-{o.amp}-b{b}-{layout}'; shutil.rmtree(out, ignore_errors=True); cost = estimate(d, o.weft, o.model, o.amp, b, layout)
                t = report.total([report.figures(d, *k) for k in report.kernels(d, o.weft, o.model, o.amp, b, out, layout)], {}); moved = json.load(open(out/'compile.json'))['transposes']['activation']
                parts = ', '.join(f'{name} {ms:.1f}' for name, ms in cost.items() if name != 'total')
                print(f"| {d} | {b} | {layout} | {cost['total']:.1f} | {parts} | {moved} | {' | '.join(str(t[f]) for f in FIGURES)} |", flush=True)
