#!/usr/bin/env python3
"""report.py --weft BIN [--device navi31,bmg,ada] [--model resnet50,vit_b_16] [--amp off,fp16] [--batch 1,32] [--layout auto] [--robust] [--kernels] [--keep DIR]
What real GPU compilers make of Weft's kernels, without a GPU. Kernels are those for the profile of the device's name (`--target`): the shim of NVIDIA answers with another chip's id and 2 SMs. One JSON line a (device, model, amp, batch); with --kernels a line a kernel as well, the heaviest first.
Figures are means weighted by FLOPs over kernels with an anchor and at least 8 FLOPs a byte (depthwise, matrix-vector and pooling are bound by memory: see --kernels). MODEL@NAME=N@... gives open dimensions their sizes.
  matrix    share of FLOPs in kernels that use matrix instructions
  dot       the same for dot products of four or eight bytes; each counts as so many multiply-adds in macs
  share     math instructions / issued instructions of the hot loop, kernels without matrix instructions
  macs      multiply-adds a lane and issue slot of the hot loop, on Intel those of 16 lanes; the mean is harmonic: multiply-adds of all kernels over their slots
  perload   multiply-adds a lane for each 128 bits that it reads from shared memory (4x4 registers 8, 8x4 10.7, 8x8 16); staging kernels without matrix instructions
  reuse     multiply-adds a lane for each 128 bits that it loads from global memory in the hot loop (tile 32x32 f32: 64, 64x64: 128, 128x64: 171; f16 twice that)
  conflict  passes that reads of shared memory take / passes without bank conflicts (32 banks of 4 bytes; matrix loads: as many bytes of each row at once as the widest load from shared memory in the ISA has, 16 at most; 12 are the larger part of 16)
  lds       AMD, kernels with matrix instructions: clocks that the hot loop's loads from shared memory take (128 bytes a clock for the two SIMDs of a CU, times conflicts) / clocks of its matrix instructions (32 each)
  sector    used / fetched bytes of the worst global operand (sectors of 32 bytes)
  wide      share of the global loads in the hot loop that are 128 bits or more
  flight    between two barriers (in code without a loop, to the last store before the second one), on each side of a branch (in workgroups of one subgroup, which have none: between stores to shared memory and loads from it): longest run of global loads without a store to shared memory / all of them; 1 is all before the first
  prefetch  share of FLOPs whose loop has loads in flight during its arithmetic
  fill      schedulers that get a subgroup at all
  spills    registers spilled, all kernels        unstaged  share of FLOPs in kernels that read no shared memory
  unknown, unread   accesses and kernels that access.py could not evaluate: they must be 0 for the other figures to count. Kernels on matrices that are not square (bmg, fp16) have no WGSL to read: `conflict`
            and `sector` are without them
Shared memory and sectors are computed from the WGSL's addresses (access.py), the rest is read from the ISA (isa.py) and the driver's statistics."""
import argparse, collections, json, os, pathlib, subprocess, sys, tempfile
here = pathlib.Path(__file__).resolve().parent; sys.path.insert(0, str(here))
import access, isa
# schedulers of the card assumed (7900 XTX, 6900 XT, B580, A770, RTX 4090, RTX 3090), lanes of a subgroup
HW = dict(navi31=('amd', 192, 64), navi21=('amd', 160, 64), gfx1150=('amd', 32, 64), bmg=('intel', 160, 32), dg2=('intel', 512, 16), lnl=('intel', 64, 32),
          ada=('nvidia', 512, 32), ampere=('nvidia', 328, 32), turing=('nvidia', 184, 32), blackwell=('nvidia', 680, 32))
cache = pathlib.Path(os.environ.get('WEFT_DRIVERS', pathlib.Path.home()/'.cache/weft-drivers'))

def gpustat():
    exe = cache/'gpustat-target/release/gpustat'
    if not exe.exists(): subprocess.run(['cargo', 'build', '--release', '--quiet', '--manifest-path', here/'gpustat/Cargo.toml', '--target-dir', cache/'gpustat-target'], check=True)
    return exe
def on(device, *cmd, **kw): return subprocess.run(['bash', here/'with-gpu.sh', device, *map(str, cmd)], stderr=subprocess.PIPE, **kw)

def kernels(device, weft, model, amp, batch, out, layout='auto', robust=False):
    out.mkdir(parents=True, exist_ok=True); isa_dir = out/'isa'; isa_dir.mkdir(exist_ok=True)
    model, *dims = model.split('@'); opts = [model, *[x for d in dims for x in ('--dim', d)], '--device', '0', '--target', device, '--amp', amp] + (['--batch', batch] if str(batch) != '1' else []) + (['--layout', layout] if layout != 'auto' else [])
    for emit in ('spirv', 'wgsl'):
        r = on(device, weft, 'compile', *opts, '--emit', emit, '--emit-dir', out, *([f'--json={out}/compile.json'] if emit == 'spirv' else []), stdout=subprocess.DEVNULL)
        # Kernels with matrices that are not square have no WGSL; everything else was written.
        if r.returncode and not (emit == 'wgsl' and b'everything else was written' in r.stderr): sys.exit(f'{device} {model}: weft compile failed: {r.stderr.decode()[-400:]}')
    files = sorted(out.glob('*.spv')); (out/'list').write_text('\n'.join(map(str, files)))
    text = on(device, gpustat(), *(['--robust'] if robust else []), '--isa-dir', isa_dir, '--list', out/'list', stdout=subprocess.PIPE).stdout.decode()
    stats = {pathlib.Path(j['file']).stem: j for j in map(json.loads, text.splitlines())}
    j = json.load(open(out/'compile.json')); groups = {g['id']: g for g in j['groups']}
    per_group = collections.Counter(c['group'] for c in j['calls'])          # a group of several dispatches: their flops sum to the group's
    for c in j['calls']: g = groups[c['group']]; c['_flops'] = c.get('flops', g['flops']/per_group[c['group']]); c['_bytes'] = c.get('bytes', g['bytes']/per_group[c['group']])
    use, signature, nth = collections.defaultdict(list), {}, 0
    named = {k.get('id', k['name']): n for n, f in enumerate(files) for k in j['kernels'] if k.get('file') and pathlib.Path(k['file']).name == f.stem}
    for c in j['calls']:                      # kernels name their files, or are emitted in the order of their first call: NNN_name
        g = groups[c['group']]; s = (c['kernel_id'] if 'kernel_id' in c else c['kernel']) if named else (c['kernel'], tuple(c['grid']), g['flops'], g['bytes'], tuple(g['ops']))
        if named: signature = named
        elif s not in signature and nth < len(files) and files[nth].stem.split('_', 1)[-1] == c['kernel']: signature[s] = nth; nth += 1
        if s not in signature:
            if named: sys.exit(f"{device} {model}: no file for the dispatch {c}")
            continue                          # names that are not unique: this dispatch is left out
        use[signature[s]].append((c, g))
    record = {pathlib.Path(k['file']).name: k for k in j['kernels'] if k.get('file')}
    for i, f in enumerate(files): yield f.stem, record.get(f.stem, j['kernels'][i]), stats.get(f.stem, {}), use[i], isa_dir/f'{f.stem}.isa', f.with_suffix('.wgsl')

def figures(device, stem, kernel, stat, calls, isa_file, wgsl):
    vendor, schedulers, lanes = HW[device]; g = calls[0][1] if calls else {}
    a = isa.analyse(vendor, isa_file.read_text()) if isa_file.exists() else None
    # NAK's "Spills to reg" are moves between its register files (a kernel of 96 registers has them), not memory.
    spills = sum(v for k, v in stat.items() if isinstance(v, (int, float)) and ('pill' in k or 'Fills' in k) and not k.endswith(' reg'))
    flops = sum(c['_flops'] for c, _ in calls); bytes_ = sum(c['_bytes'] for c, _ in calls)
    row = dict(kernel=stem, rule=g.get('rule'), ops='+'.join(g.get('ops', [])), anchor=g.get('anchor'), calls=len(calls), flops=flops, intensity=round(flops/max(1, bytes_), 1), spills=spills, error=stat.get('error'))
    if not a or not a['n'].get('math', 0) + a['n'].get('matrix', 0): return row
    simd = stat.get('subgroup') or lanes; n = a['n']; scale = 32/simd
    fma = (a['fma']*scale if vendor == 'intel' else a['fma']) + a['fma_matrix']*scale; bits = a['global_load_bits']; loads = sum(bits.values())
    row |= dict(subgroup=simd, share=a['math_share'], macs=round((fma*simd/16 if vendor == 'intel' else fma)/max(1, a['issued']), 2), matrix=n.get('matrix', 0), dots=a['dots'], math=n.get('math', 0), issued=a['issued'], stages=a['stages'],
        registers=stat.get('VGPRs', stat.get('Number of GPRs', stat.get('Max live registers'))), loads=dict(bits), prefetch=a['prefetch'], flight=a['flight'],
        wide=round(sum(c for b, c in bits.items() if b >= 128)/loads, 2) if loads else 1.0, reuse=round(fma/(sum(b*c for b, c in bits.items())/128), 1) if loads else None,
        estimate={k: v for k, v in stat.items() if k in ('Inverse Throughput', 'Latency', 'Static cycle count', 'Cycle Count', 'Cycles')})
    read = sum(int(b)*c for b, c in a['lds_load_bits'].items())/128; row['perload'] = round(fma/read, 1) if read and not row['matrix'] else None
    # Each row of a matrix operand in pieces that the ISA loads at once.
    widest = min(128, max(map(int, a['lds_load_bits']), default=128)); at_once = (128 if widest == 96 else widest)//8 if row['matrix'] else 16
    w = {} if not wgsl.exists() else access.summary(str(wgsl), matrix=max(4, at_once), lanes=min(lanes, simd) if vendor == 'intel' else lanes, group=tuple(g // 2 for g in calls[0][0]['grid']) if calls else (0, 0, 0))
    shared = [(v, 4 if v['bytes'] == 4 and v['n'] >= 16 and v['n'] % 4 == 0 else 1) for k, v in w.items() if isinstance(v, dict) and 'merged' in v and 'store' not in k]
    memory = [v for k, v in w.items() if isinstance(v, dict) and 'efficiency' in v and 'store' not in k]; row['unknown'] = w.get('unknown', 0)
    ideal = sum(v['sum_ideal']/c for v, c in shared); row['conflict'] = round(sum(v['sum_merged']/c for v, c in shared)/ideal, 2) if ideal else (None if row['stages'] else 1.0)
    row['lds'] = round(2*read*16*simd/128*(row['conflict'] or 1)/(32*n['matrix']), 2) if vendor == 'amd' and row['matrix'] else None
    row['sector'] = min([v['efficiency'] for v in memory]) if memory else (None if loads else 1.0); wg = kernel['workgroup']; sub = -(-wg[0]*wg[1]*wg[2]//simd)
    row['fill'] = round(sum(c['_flops']*min(1, c['grid'][0]*c['grid'][1]*c['grid'][2]*sub/schedulers) for c, _ in calls)/max(1, flops), 2)
    return row

def total(rows, table):
    t = [r for r in rows if r['flops'] and 'share' in r and r['anchor'] and r['intensity'] >= 8]; all_ = sum(r['flops'] for r in t) or 1
    def mean(k, over=None):
        u = [r for r in (over if over is not None else t) if r.get(k) is not None]; f = sum(r['flops'] for r in u); return round(sum(r['flops']*float(r[k]) for r in u)/f, 2) if f else None
    def harmonic(k): u = [r for r in t if r.get(k)]; s = sum(r['flops']/r[k] for r in u); return round(sum(r['flops'] for r in u)/s, 2) if s else None
    scalar = [r for r in t if not r['matrix']]
    return table | dict(matrix=round(sum(r['flops'] for r in t if r['matrix'])/all_, 2), dot=round(sum(r['flops'] for r in t if r['dots'])/all_, 2), share=mean('share', scalar), macs=harmonic('macs'), perload=mean('perload', [r for r in scalar if r['stages']]),
        **{k: mean(k) for k in ('reuse', 'conflict', 'lds', 'sector', 'wide', 'flight', 'prefetch', 'fill')}, spills=sum(r['spills'] for r in rows), unstaged=round(1-sum(r['flops'] for r in t if r['stages'])/all_, 2),
        unknown=sum(r['unknown'] for r in t), unread=[r['kernel'] for r in t if r['conflict'] is None or r['sector'] is None], kernels=len(rows), counted=len(t), errors=[r['kernel'] for r in rows if r['error']])

if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--weft', required=True); p.add_argument('--device', default='navi31,bmg,ada'); p.add_argument('--model', default='resnet50'); p.add_argument('--amp', default='off,fp16')
    p.add_argument('--batch', default='1'); p.add_argument('--layout', default='auto', help='as weft compile takes it'); p.add_argument('--robust', action='store_true', help='with robustBufferAccess, as wgpu opens devices'); p.add_argument('--kernels', action='store_true'); p.add_argument('--keep')
    o = p.parse_args(); tmp = tempfile.TemporaryDirectory(); base = pathlib.Path(o.keep or tmp.name)
    for d in o.device.split(','):
        for m in o.model.split(','):
            for amp in o.amp.split(','):
                for b in o.batch.split(','):
                    rows = [figures(d, *k) for k in kernels(d, o.weft, m, amp, b, base/d/f'{pathlib.Path(m.split(chr(64))[0]).stem}-{amp}-b{b}', o.layout, o.robust)]
                    if o.kernels:
                        for r in sorted(rows, key=lambda r: -r['flops']): print(json.dumps(r))
                    print(json.dumps(total(rows, dict(device=d, model=pathlib.Path(m.split('@')[0]).stem, amp=amp, batch=b))), flush=True)
