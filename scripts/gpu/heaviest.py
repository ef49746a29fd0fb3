#!/usr/bin/env python3
"""heaviest.py --before BIN --after BIN [--model resnet50] [--device navi31,bmg,ada] [--amp off,fp16] [--batch 1] [--layers 10] [--keep DIR] [--other LAYER=FILE.spv ...]
A network's heaviest layers before and after a change, by what the GPUs' own compilers estimate: a markdown table for each device and precision.
  estimate      the driver's static estimate of a kernel (AMD: ACO's inverse throughput, Intel: ANV's cycles, NVIDIA: NAK's static cycles); it knows no trip counts
  adds          multiply-adds a lane in the kernel's hot loop
  before, after estimate / adds; after/before below 1 is better
  a subgroup's  the same ratio for equal subgroups, where the driver chose another width (@16, @32): estimates are for one subgroup
Layers that use the same kernels before and after are one row. Of a layer in several dispatches (split in K, say) the one with the product counts.
--other puts another system's shader for a layer beside them, as SPIR-V without open specialization constants (spirv-opt --set-spec-const-default-value=... --freeze-spec-const).

  heaviest.py --before weft-before --after weft-after --other layer1.0.conv2=conv3x3.spv layer4.1.conv1=gemm.spv"""
import argparse, json, pathlib, shutil, subprocess, tempfile
import isa, report
ESTIMATE = dict(amd='Inverse Throughput', intel='Cycles', nvidia='Static cycle count')

def cost(device, stat, loop):
    """The driver's estimate, the multiply-adds of the hot loop, their quotient."""
    vendor, _, lanes = report.HW[device]; scale = 32/(stat.get('subgroup') or lanes)
    adds = (loop['fma']*scale if vendor == 'intel' else loop['fma']) + loop['fma_matrix']*scale
    return dict(estimate=stat.get(ESTIMATE[vendor]), adds=adds, cost=stat.get(ESTIMATE[vendor], 0)/adds, lanes=stat.get('subgroup') or lanes) if adds else None

def layers(device, weft, model, amp, batch, out):
    """{name of a layer: its kernel with the product}; layer1.0.conv2 is /layer1/layer1.0/conv2/Conv"""
    found, vendor = {}, report.HW[device][0]; shutil.rmtree(out, ignore_errors=True)
    for stem, _, stat, calls, isa_file, _ in report.kernels(device, weft, model, amp, batch, out):
        loop = isa.analyse(vendor, isa_file.read_text()) if isa_file.exists() else None; c = loop and cost(device, stat, loop)
        for call, group in calls if c else []:
            node = next((n for n in group['origins'] if group['anchor'] and n.lower().endswith(group['anchor'])), group['origins'][0])
            path = node.strip('/').split('/')[:-1] or [node]; name = '.'.join(p for p, q in zip(path, path[1:] + ['']) if not q.startswith(p + '.'))
            if name not in found or (call['_flops'], c['adds']) > found[name]['rank']:
                found[name] = c | dict(rank=(call['_flops'], c['adds']), flops=group['flops'], kernel=stem, grid=call['grid'])
    return found

def others(device, files, out):
    """The same of SPIR-V files."""
    out.mkdir(parents=True, exist_ok=True)
    text = report.on(device, report.gpustat(), '--isa-dir', out, *files, stdout=subprocess.PIPE).stdout.decode()
    for stat in map(json.loads, text.splitlines()):
        yield stat['file'], cost(device, stat, isa.analyse(report.HW[device][0], (out/f"{pathlib.Path(stat['file']).stem}.isa").read_text()))

def parts(c): return f"{c['estimate']} / {c['adds']:.0f} @{c['lanes']}" if c else '-'
def ratio(a, b): return f"{a/b:.2f}"

if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--before', required=True); p.add_argument('--after', required=True); p.add_argument('--model', default='resnet50'); p.add_argument('--device', default='navi31,bmg,ada')
    p.add_argument('--amp', default='off,fp16'); p.add_argument('--batch', default='1'); p.add_argument('--layers', type=int, default=10); p.add_argument('--keep'); p.add_argument('--other', nargs='*', default=[])
    o = p.parse_args(); tmp = tempfile.TemporaryDirectory(); base = pathlib.Path(o.keep or tmp.name); other = [x.split('=', 1) for x in o.other]
    for d in o.device.split(','):
        beside = dict(others(d, [f for _, f in other], base/'other'/d)) if other else {}
        for amp in o.amp.split(','):
            before, after = (layers(d, w, o.model, amp, o.batch, base/side/d/amp) for side, w in (('before', o.before), ('after', o.after)))
            rows = {}
            for name in sorted(after, key=lambda n: -after[n]['flops']):
                rows.setdefault((before.get(name, {}).get('kernel'), after[name]['kernel']), []).append(name)
            print(f"\n{o.model}, {d}, amp {amp}, batch {o.batch}: {ESTIMATE[report.HW[d][0]]}\n\n| layer | MFLOP | before: estimate / adds | | after | | after/before | a subgroup's |{' other | |' if other else ''}\n|{'---|'*(10 if other else 8)}")
            for names in list(rows.values())[:o.layers]:
                a, b = after[names[0]], before.get(names[0]); x = [beside.get(f) for n, f in other if n in names]
                line = [names[0] + (f' and {len(names)-1} more' if names[1:] else ''), f"{a['flops']/1e6:.0f}", parts(b), f"{b['cost']:.2f}" if b else '-', parts(a), f"{a['cost']:.2f}"]
                line += [ratio(a['cost'], b['cost']), ratio(a['cost']/a['lanes'], b['cost']/b['lanes'])] if b else ['-', '-']
                if other: line += ['; '.join(map(parts, x)), '; '.join(f"{c['cost']:.2f}" if c else '-' for c in x)]
                print('| ' + ' | '.join(line) + ' |', flush=True)
