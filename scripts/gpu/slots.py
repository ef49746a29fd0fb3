#!/usr/bin/env python3
"""slots.py --weft BIN [--device navi31,bmg,ada] [--model resnet50,mobilenet_v2,vit_b_16] [--amp off,fp16] [--batch 1] [--options '--nan fast'] [--kernels N] [--keep DIR]
Issue slots of a network, as Weft compiles it by default and with other options: a markdown table with the ratio default/other. No GPU is needed (see with-gpu.sh).
  slots     instructions that all subgroups of the network's dispatches issue: those of a kernel outside its hot loop once, those of the hot loop (isa.py)
            as often as the dispatch's multiply-adds need. Hints of the instruction set that take no slot are not counted. Loops without multiply-adds count once.
  by op     where the slots of the default come from, in percent of the other side's: an op of the list that a kernel has, or the kernel's ops
  kernels   with --kernels N: the N kernels whose slots differ most
The driver's compiler is asked by `weft compile --emit isa`, so pipelines have what wgpu asks for."""
import argparse, collections, json, pathlib, shlex, sys, tempfile
here = pathlib.Path(__file__).resolve().parent; sys.path.insert(0, str(here))
import isa, report
OPS = ('softmax', 'gelu', 'clip', 'max_pool', 'relu')

def count(vendor, text, lanes):
    """Instructions of a program outside its hot loop and in it, and the multiply-adds of a subgroup in one pass of the loop."""
    a = isa.analyse(vendor, text); cats = dict(amd=isa.amd, intel=isa.intel, nvidia=isa.nvidia)[vendor](text)[0]
    whole = sum(isa.slots(vendor, c) for c in cats)
    # isa.py counts multiply-adds of matrix instructions for subgroups of 32, and those of Intel's instructions in subgroups of 32.
    adds = (a['fma']*32 if vendor == 'intel' else a['fma']*lanes) + a['fma_matrix']*32
    return whole - a['issued'] if a['loops'] else 0, a['issued'] if a['loops'] else whole, adds if a['loops'] else 0

def network(device, weft, model, amp, batch, options, out):
    """{kernel: [calls, slots, ops, lanes of a subgroup]}"""
    out.mkdir(parents=True, exist_ok=True); vendor, _, lanes = report.HW[device]
    r = report.on(device, weft, 'compile', model, '--device', '0', '--target', device, '--amp', amp, *(['--batch', batch] if batch != '1' else []), *options, '--emit', 'isa', '--emit-dir', out, f'--json={out}/compile.json', '-q')
    if r.returncode: sys.exit(f'{device} {model}: weft compile failed: {r.stderr.decode()[-400:]}')
    j = json.load(open(out/'compile.json')); groups = {g['id']: g for g in j['groups']}; kernels = {k['id']: k for k in j['kernels']}
    stats = {k['file'] if 'file' in k else k['name']: k for k in j['driver_stats']['kernels']}
    per_group = {}
    for c in j['calls']: per_group[c['group']] = per_group.get(c['group'], 0) + 1
    rows = {}
    for c in j['calls']:
        k = kernels[c['kernel_id']]; file = next(f for f in (out/f"{pathlib.Path(k['file']).name}{e}" for e in ('.isa', '')) if f.exists())
        s = stats.get(k['file']) or stats[k['name']]; width = s['executables'][-1]['subgroup_size'] or lanes
        outside, loop, adds = count(vendor, file.read_text(), width)
        w = k['workgroup']; subgroups = c['grid'][0]*c['grid'][1]*c['grid'][2]*-(-w[0]*w[1]*w[2]//width)
        flops = c.get('flops', groups[c['group']]['flops']/per_group[c['group']])
        passes = max(1, flops/2/(adds*subgroups)) if adds else 1
        row = rows.setdefault(k['name'], [0, 0, '+'.join(groups[c['group']].get('ops', [])), width]); row[0] += 1; row[1] += subgroups*(outside + passes*loop)
    return rows

if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--weft', required=True); p.add_argument('--device', default='navi31,bmg,ada'); p.add_argument('--model', default='resnet50,mobilenet_v2,vit_b_16'); p.add_argument('--amp', default='off,fp16')
    p.add_argument('--batch', default='1'); p.add_argument('--options', default='--nan fast', help='of the other side'); p.add_argument('--kernels', type=int, default=0); p.add_argument('--keep')
    o = p.parse_args(); tmp = tempfile.TemporaryDirectory(); base = pathlib.Path(o.keep or tmp.name); notes = []
    print(f'| network | precision | device | slots, millions | with {o.options} | ratio | by op |\n|---|---|---|---|---|---|---|')
    for m in o.model.split(','):
        for amp in o.amp.split(','):
            for d in o.device.split(','):
                a, b = (network(d, o.weft, m, amp, o.batch, x, base/d/f'{pathlib.Path(m).stem}-{amp}-{side}') for side, x in (('default', []), ('other', shlex.split(o.options))))
                sa, sb = (sum(r[1] for r in rows.values()) for rows in (a, b)); by = collections.Counter()
                for k in a.keys() & b.keys(): by[next((x for x in OPS if x in a[k][2].split('+')), a[k][2])] += 100*(a[k][1] - b[k][1])/sb
                print(f"| {pathlib.Path(m).stem} | {'f32' if amp == 'off' else amp} | {d} | {sa/1e6:.2f} | {sb/1e6:.2f} | {sa/sb:.3f} | {', '.join(f'{x} {y:+.2f} %' for x, y in by.most_common() if abs(y) >= .005)} |", flush=True)
                changed = sorted(((r[1] - b[k][1])/sb, k) for k, r in a.items() if k in b and r[1] != b[k][1]); changed = sorted(changed, key=lambda x: -abs(x[0]))
                notes += [f'{m} {amp} {d}: {k} ({a[k][2]}, subgroups of {a[k][3]} and {b[k][3]}): {a[k][1]/1e6:.3f} against {b[k][1]/1e6:.3f} million, {100*part:+.2f} % of the network' for part, k in changed[:o.kernels]]
                only = [k for k in a if k not in b] + [k for k in b if k not in a]
                if only: notes.append(f'{m} {amp} {d}: kernels on one side only: {", ".join(only)}')
    if notes: print('\n' + '\n'.join(f'- {n}' for n in notes))
