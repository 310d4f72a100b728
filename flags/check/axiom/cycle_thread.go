package axiom

import "fmt"

// place puts each thread in the block of the one before, in another block, or on another device.
func (m *maker) place(threads int) {
	device, block := 0, 0
	for i := range threads {
		if i > 0 {
			switch m.r.IntN(4) {
			case 0: // the same block
			case 1, 2:
				block++
			case 3:
				device, block = min(device+1, 2), block+1
			}
		}
		m.places = append(m.places, fmt.Sprintf("d%d.b%d.t%d", device, block, i))
	}
}

func (m *maker) scope() string {
	if m.wide {
		return "sys"
	}
	return m.pick("cta", "gpu", "gpu", "gpu", "sys", "sys", "sys")
}

// strength draws how strong an access is, and whether it is an RMW.
func (m *maker) strength(a *access) {
	switch n := m.r.IntN(10); {
	case n == 0 && !m.wide:
		a.order = ".weak"
	case n < 6:
		a.order = ".relaxed." + m.scope()
	case a.write:
		a.order = ".release." + m.scope()
	default:
		a.order = ".acquire." + m.scope()
	}
	a.rmw = a.order != ".weak" && m.r.IntN(6) == 0
}

// thread writes a column: one access, or two with something or nothing between them.
func (m *maker) thread(th int, own []access) {
	code := &m.columns[th]
	value, offset, guard := "", "", ""
	for i, a := range own {
		m.access(code, a, value, offset, guard)
		if i+1 == len(own) {
			break
		}
		reg := fmt.Sprintf("r%d", a.reg)
		next := own[i+1]
		switch n := m.r.IntN(8); {
		case n < 2:
			*code = append(*code, "fence.acq_rel."+m.scope())
		case n < 5:
			*code = append(*code, "fence.sc."+m.scope())
		case n == 5 && !a.write && next.write:
			*code = append(*code, "and.b32 r20, "+reg+", 0", fmt.Sprintf("add.u32 r20, r20, %d", next.value))
			value = "r20"
		case n == 6 && !a.write:
			*code = append(*code, "and.b32 r20, "+reg+", 0")
			offset = "+r20"
		case n == 7 && !a.write:
			*code = append(*code, "setp.ne.u32 p0, "+reg+", 77")
			guard = "@p0 "
		}
	}
}

func (m *maker) access(code *[]string, a access, value, offset, guard string) {
	at := "[" + locations[a.loc] + offset + "]"
	if value == "" {
		value = fmt.Sprint(a.value)
	}
	switch {
	case a.write && a.rmw:
		*code = append(*code, fmt.Sprintf("%satom%s.exch.b32 r%d, %s, %s", guard, a.order, a.reg, at, value))
	case a.write:
		*code = append(*code, fmt.Sprintf("%sst%s.u32 %s, %s", guard, a.order, at, value))
	case a.rmw:
		*code = append(*code, fmt.Sprintf("%satom%s.add.u32 r%d, %s, 0", guard, a.order, a.reg, at))
	default:
		*code = append(*code, fmt.Sprintf("%sld%s.u32 r%d, %s", guard, a.order, a.reg, at))
	}
	if !a.write {
		m.wants = append(m.wants, fmt.Sprintf("r%d = %d", a.reg, a.value))
	}
}
