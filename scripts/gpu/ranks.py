#!/usr/bin/env python3
"""ranks.py --weft BIN [--before BIN] [--device navi31,bmg,ada] [--amp off] [--most 48] [--keep DIR]
How estimates rank the schedules of single ops against the issue slots that the GPU's own compiler makes of them (slots.py; with-gpu.sh: no GPU is needed).
Ten convolutions and four products, batch 1. Of each: the default, every schedule that differs from it in one choice, and for tiles each depth; more than --most are drawn with seed 0.
A markdown row for each op and device: schedules, and Spearman's rank correlation of their slots with the estimate of the scheduled kernels by --weft, and by --before where it reads them.
Slots are no time: waits for memory, launches and empty cores are in the estimate and not in them."""
import argparse, pathlib, random, re, statistics, subprocess, sys, tempfile
here = pathlib.Path(__file__).resolve().parent; sys.path.insert(0, str(here))
import slots
# name: channels in, height = width, channels out, window, stride, groups
CONVS = dict(stem=(3, 224, 64, 7, 2, 1), a1x1=(64, 56, 256, 1, 1, 1), a3x3=(64, 56, 64, 3, 1, 1), b3x3=(128, 28, 128, 3, 1, 1), b3x3s2=(128, 56, 128, 3, 2, 1), c1x1=(1024, 14, 256, 1, 1, 1), c3x3=(256, 14, 256, 3, 1, 1),
             d1x1=(2048, 7, 512, 1, 1, 1), dw3x3=(144, 56, 144, 3, 1, 144), dw5x5=(240, 28, 240, 5, 1, 240))
PRODUCTS = dict(vit_qkv=(197, 2304, 768), vit_mlp=(197, 3072, 768), head=(1, 1000, 2048), square=(512, 512, 512))          # rows, columns, depth
UNITS = dict(ns=1e-3, us=1., ms=1e3, s=1e6)

def text(name):
    if name in PRODUCTS:
        m, n, k = PRODUCTS[name]
        return f'const @w : f32[{k},{n}] = random(1)\ngraph @main(%x: f32[{m},{k}]) -> (y: f32[{m},{n}]) {{\n  %w = const @w\n  %y = matmul %x, %w : f32[{m},{n}]\n  return %y\n}}\n'
    c, h, o, r, s, g = CONVS[name]; p, q = r//2, (h + 2*(r//2) - r)//s + 1
    return f'const @w : f32[{o},{c//g},{r},{r}] = random(1)\ngraph @main(%x: f32[1,{c},{h},{h}]) -> (y: f32[1,{o},{q},{q}]) {{\n  %w = const @w\n  %y = conv %x, %w {{pads=[{p},{p},{p},{p}], strides=[{s},{s}], group={g}}} : f32[1,{o},{q},{q}]\n  return %y\n}}\n'

def run(*cmd):
    r = subprocess.run([str(x) for x in cmd], capture_output=True, text=True)
    return r.stdout if r.returncode == 0 else None

def split_values(of):
    out, depth, word = [], 0, ''
    for c in of:
        depth += (c == '[') - (c == ']')
        if c == ',' and not depth: out.append(word); word = ''
        else: word += c
    return out + [word]

def choices(schedule):
    """[(unit, point, value, [values])] of a schedule's lines"""
    found = [re.fullmatch(r'choose \{unit=(\S+), point=(\S+), value=(.*), of=\[(.*)\]\}', l.strip()) for l in schedule]
    return [(m[1], m[2], m[3], split_values(m[4])) for m in found if m]

def edited(module, wanted):
    """The text with `choose` lines alone: the rules schedule by them."""
    out, inside = [], False
    for l in module.split('\n'):
        if l.strip() == 'schedule {': out += [l, *(f'    choose {{unit={u}, point={p}, value={v}}}' for u, p, v in wanted)]; inside = True; continue
        if inside and l.strip() == '}': inside = False
        if not inside: out.append(l)
    return '\n'.join(out)

def lines(module):
    out, inside = [], False
    for l in module.split('\n'):
        if l.strip() == 'schedule {': inside = True
        elif inside and l.strip() == '}': break
        elif inside: out.append(l)
    return out

def candidates(weft, module, device, amp, at):
    """Texts of the default and of what differs in one choice; and of each changed tile, every depth."""
    def compiled(wanted):
        at.write_text(edited(module, wanted)); t = run(weft, 'compile', at, '--target', device, '--amp', amp, '--cache', 'off', '--emit', 'weft', '-q')
        return t if t and lines(t) else None
    seen, out = set(), []
    def add(t):
        if t and (key := '\n'.join(lines(t))) not in seen: seen.add(key); out.append(t); return t
    def around(t, points=None):
        found = choices(lines(t))
        for i, (unit, point, value, values) in enumerate(found):
            for v in values if points is None or point in points else []:
                if v != value: yield point, add(compiled([(u, p, w) for j, (u, p, w, _) in enumerate(found) if j < i or u != unit] + [(unit, point, v)]))
    add(module)
    for point, t in list(around(module)):
        if t and point == 'tile': list(around(t, ('depth',)))
        if t and point == 'rule': list(around(t, ('tile', 'rows', 'columns', 'threads', 'vector')))
    return out

def estimate(weft, file, device, amp):
    m = re.search(r'^estimated: ([\d.]+) (\w+)', run(weft, 'explain', file, '--target', device, '--amp', amp, '--cache', 'off', '-v') or '', re.M)
    return float(m[1])*UNITS[m[2]] if m else None

def spearman(a, b):
    def ranks(x):
        order = sorted(range(len(x)), key=x.__getitem__); r = [0.]*len(x); i = 0
        while i < len(x):
            j = i
            while j + 1 < len(x) and x[order[j + 1]] == x[order[i]]: j += 1
            for k in range(i, j + 1): r[order[k]] = (i + j)/2
            i = j + 1
        return r
    return statistics.correlation(ranks(a), ranks(b)) if len(a) > 2 and len(set(a)) > 1 and len(set(b)) > 1 else float('nan')

if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--weft', required=True); p.add_argument('--before'); p.add_argument('--device', default='navi31,bmg,ada'); p.add_argument('--amp', default='off'); p.add_argument('--most', type=int, default=48); p.add_argument('--keep')
    p.add_argument('--op', help='these alone'); o = p.parse_args(); tmp = tempfile.TemporaryDirectory(); base = pathlib.Path(o.keep or tmp.name)
    print('| op | device | schedules | with the estimate | before, read | before | now, of those |\n|---|---|---|---|---|---|---|'); means = {}
    for name in o.op.split(',') if o.op else [*CONVS, *PRODUCTS]:
        for d in o.device.split(','):
            folder = base/d/name; folder.mkdir(parents=True, exist_ok=True); source = folder/'source.weft'; source.write_text(text(name))
            module = run(o.weft, 'compile', source, '--target', d, '--amp', o.amp, '--cache', 'off', '--emit', 'weft', '-q') or sys.exit(f'{name} {d}: does not compile')
            found = candidates(o.weft, module, d, o.amp, folder/'edited.weft'); rest = found[1:]
            if len(rest) > o.most: rest = random.Random(0).sample(rest, o.most)
            rows = []
            for i, t in enumerate([found[0], *rest]):
                file = folder/f'{i}.weft'; file.write_text(t); now = estimate(o.weft, file, d, o.amp)
                issued = sum(r[1] for r in slots.network(d, o.weft, str(file), o.amp, '1', ['--cache', 'off'], folder/str(i)).values())
                if now and issued: rows.append((issued, now, estimate(o.before, file, d, o.amp) if o.before else None))
            both = [r for r in rows if r[2]]; now = spearman([r[0] for r in rows], [r[1] for r in rows])
            old, same = (spearman([r[0] for r in both], [r[i] for r in both]) for i in (2, 1))
            print(f'| {name} | {d} | {len(rows)} | {now:.3f} | {len(both)} | {old:.3f} | {same:.3f} |', flush=True); means.setdefault(d, []).append((now, old, same))
    for d, list_ in means.items():
        cells = [statistics.mean([x for x in column if x == x] or [float('nan')]) for column in zip(*list_)]
        print(f'| mean | {d} | | {cells[0]:.3f} | | {cells[1]:.3f} | {cells[2]:.3f} |')
