#!/usr/bin/env python3
"""kernel_ranks.py --weft BIN [--device navi31,bmg,ada] [--model resnet50,...] [--amp off,fp16] [--batch 1] [--kinds] [--kernels N] [--keep DIR]
How Weft's estimate ranks the kernels of a network, beside what the GPU's own compiler makes of them (with-gpu.sh: no GPU is needed). A markdown row for each network, device and precision, then the means.
  kernels   kernels of the network whose name is unique, without gathers, whose table counts whole in the bytes of a dispatch
  model     a kernel's time by the compiled code: the larger of its bytes over the device's published bandwidth, and the slots of its longest scheduler over the clock: instructions outside the hot loop
            once, those of the hot loop as often as the multiply-adds need, twice in subgroups of 64 on AMD
  slots     Spearman's rank correlation of the estimate without launches with the slots of all subgroups
  rank      the same with the model
  --kinds   by rule: the median of estimate over model, over that of the same network (1: as the others), the kernels, their estimated microseconds, and the largest
  --kernels N: the N kernels of each row whose ranks differ most
The model knows no latency, no shared memory and no matrix clocks: it judges an order, not times."""
import argparse, collections, concurrent.futures, json, math, pathlib, re, statistics, subprocess, sys, tempfile
here = pathlib.Path(__file__).resolve().parent; sys.path.insert(0, str(here))
import report, slots
from ranks import spearman
# schedulers and clock in GHz, bandwidth in GB/s
HARDWARE = dict(navi31=(192, 2.5, 960), bmg=(160, 2.85, 456), ada=(512, 2.52, 1008))
TEN = 'resnet50,vit_b_16,mobilenet_v2,efficientnet_b0,ssdlite,squeezenet1_1,densenet121,mobilenet_v3_small,encoder,unet'

def estimates(weft, model, device, amp, batch, out):
    """{kernel: its record in the report}"""
    page = out/'report.html'; more = ['--batch', batch] if batch != '1' else []
    model, *dims = model.split('@')
    r = subprocess.run([weft, 'report', model, *[x for d in dims for x in ('--dim', d)], '--target', device, '--amp', amp, *more, '--cache', 'off', '--output', page, '-q'], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    if r.returncode: sys.exit(f'{device} {model}: weft report failed: {r.stderr.decode()[-400:]}')
    return {k['name']: k for k in json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)[1])['kernels']}

def kernels(weft, model, device, amp, batch, out):
    """[dict(kernel, rule, estimate, slots, issue, bytes, model)] of the kernels with a name of their own, times in microseconds"""
    out.mkdir(parents=True, exist_ok=True); vendor, _, lanes = report.HW[device]; schedulers, ghz, bandwidth = HARDWARE[device]
    name, *dims = model.split('@')
    r = report.on(device, weft, 'compile', name, *[x for d in dims for x in ('--dim', d)], '--device', '0', '--target', device, '--amp', amp, *(['--batch', batch] if batch != '1' else []), '--cache', 'off', '--emit', 'isa', '--emit-dir', out, f'--json={out}/compile.json', '-q')
    if r.returncode: sys.exit(f'{device} {model}: weft compile failed: {r.stderr.decode()[-400:]}')
    j = json.load(open(out/'compile.json')); found = estimates(weft, model, device, amp, batch, out); names = collections.Counter(k['name'] for k in j['kernels'])
    stats = {k['file']: k for k in j['driver_stats']['kernels']}; calls = {}; groups = {g['id']: g for g in j['groups']}
    for c in j['calls']: calls.setdefault(c['kernel_id'], []).append(c)
    for k in j['kernels']:
        e = found.get(k['name'], {}).get('estimate'); file = out/f"{k['file']}.isa"
        if names[k['name']] > 1 or not e or not file.exists(): continue
        call = calls[k['id']][0]
        if 'gather' in groups[call['group']].get('ops', []): continue
        own = stats[k['file']]['executables'][-1]['subgroup_size'] or lanes; outside, loop, adds = slots.count(vendor, file.read_text(), own)
        g, w = call['grid'], k['workgroup']; subgroups = g[0]*g[1]*g[2]*-(-w[0]*w[1]*w[2]//own)
        each = outside + max(1, call.get('flops', 0)/2/(adds*subgroups) if adds else 1)*loop; times = 2 if vendor == 'amd' and own == 64 else 1
        issue = math.ceil(subgroups/schedulers)*each*times/ghz/1e3; memory = call.get('bytes', 0)/bandwidth/1e3
        yield dict(kernel=k['name'], rule=groups[call['group']].get('rule'), ops='+'.join(groups[call['group']].get('ops', [])), calls=len(calls[k['id']]), estimate=e['us'] - e['parts_us']['launch'], parts=e['parts_us'], hidden=e['hidden_us'],
                   slots=subgroups*each*times, issue=issue, bytes=memory, model=max(issue, memory), grid=g, workgroup=w, registers=stats[k['file']]['executables'][-1].get('registers'))

def places(x):
    order = sorted(range(len(x)), key=x.__getitem__); return {i: n for n, i in enumerate(order)}

if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--weft', required=True); p.add_argument('--device', default='navi31,bmg,ada'); p.add_argument('--model', default=TEN); p.add_argument('--amp', default='off,fp16'); p.add_argument('--batch', default='1')
    p.add_argument('--kinds', action='store_true'); p.add_argument('--kernels', type=int, default=0); p.add_argument('--keep'); p.add_argument('--jobs', type=int, default=1); o = p.parse_args()
    tmp = tempfile.TemporaryDirectory(); base = pathlib.Path(o.keep or tmp.name); means = collections.defaultdict(list); kinds = collections.defaultdict(list); notes = []
    todo = [(m, d, a) for m in o.model.split(',') for d in o.device.split(',') for a in o.amp.split(',')]
    def one(t): return list(kernels(o.weft, t[0], t[1], t[2], o.batch, base/t[1]/f"{pathlib.Path(t[0].split('@')[0]).stem}-{t[2]}"))
    print('| network | device | precision | kernels | slots | rank |\n|---|---|---|---|---|---|')
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        for (m, d, a), rows in zip(todo, pool.map(one, todo)):
            name = pathlib.Path(m.split('@')[0]).stem; est, model = ([r[k] for r in rows] for k in ('estimate', 'model'))
            by_slots, rank = spearman(est, [r['slots'] for r in rows]), spearman(est, model); means[d, a].append((by_slots, rank))
            print(f"| {name} | {d} | {'f32' if a == 'off' else a} | {len(rows)} | {by_slots:.2f} | {rank:.2f} |", flush=True)
            usual = statistics.median([r['estimate']/r['model'] for r in rows if r['model'] > .5] or [1])
            for r in rows:
                if r['model'] > .5 or r['estimate'] > 2: kinds[d, a, r['rule']].append((r['estimate']/max(r['model'], .05)/usual, r['estimate']*r['calls'], f"{name} {r['kernel']} {r['estimate']:.1f} {r['model']:.1f} ({r['issue']:.1f}, {r['bytes']:.1f})"))
            pe, pm = places(est), places(model); far = sorted(range(len(rows)), key=lambda i: -abs(pe[i] - pm[i]))[:o.kernels]
            for i in far: r = rows[i]; notes.append(f"{name} {d} {a}: {r['kernel']} ({r['rule']}, {r['ops']}): place {pe[i]} for {pm[i]} of {len(rows)}; estimate {r['estimate']:.2f} ({', '.join(f'{k} {v:.2f}' for k, v in r['parts'].items() if v)}, hidden {r['hidden']:.2f}), issue {r['issue']:.2f}, bytes {r['bytes']:.2f}, grid {r['grid']} of {r['workgroup']}")
    for (d, a), list_ in sorted(means.items()): print(f"| mean | {d} | {'f32' if a == 'off' else a} | | {statistics.mean(x[0] for x in list_):.3f} | {statistics.mean(x[1] for x in list_):.3f} |")
    if o.kinds:
        print('\n| device | precision | rule | estimate / model, of the usual | kernels | us | the largest: estimate, model (issue, bytes) |\n|---|---|---|---|---|---|---|')
        for (d, a, rule), list_ in sorted(kinds.items(), key=lambda x: (x[0][0], x[0][1], -sum(y[1] for y in x[1]))): print(f"| {d} | {a} | {rule} | {statistics.median(x[0] for x in list_):.2f} | {len(list_)} | {sum(x[1] for x in list_):.0f} | {max(list_, key=lambda x: x[1])[2]} |")
    if notes: print('\n' + '\n'.join(f'- {n}' for n in notes))
