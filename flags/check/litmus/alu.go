package litmus

import "strings"

func (c *cell) alu() {
	c.in.Op = Alu
	if c.in.Fn == "mov" && c.take("b128") != "" {
		c.movWide()
		return
	}
	switch c.in.Fn {
	case "mul":
		c.need("lo")
		c.typ(4)
	case "cvt":
		to := c.need("u64", "u32")
		from := c.need("u64", "u32")
		if to == from {
			c.fail(c.col, "use mov", "`%s` converts nothing", c.in.Mnemonic)
		}
		c.nargs(2, 2)
		c.in.Fn, c.in.Type, c.in.Size = "mov", to, typeSize(to)
		c.dst(0)
		c.src(c.args[1], c.cols[1], typeSize(from))
		return
	default:
		c.typ(4)
	}
	n := 3
	if c.in.Fn == "mov" {
		n = 2
	}
	c.nargs(n, n)
	c.dst(0)
	c.src(c.args[1], c.cols[1], c.in.Size)
	if n == 3 {
		size := c.in.Size
		if c.in.Fn == "shl" || c.in.Fn == "shr" {
			size = 4
		}
		c.src(c.args[2], c.cols[2], size)
	}
}

// movWide is a mov between a register of 128 bits and another, or its parts.
func (c *cell) movWide() {
	c.in.Type, c.in.Size = "b128", 16
	c.nargs(2, 2)
	for i, s := range c.args {
		if !strings.HasPrefix(s, "{") {
			continue
		}
		if c.in.Fn != "mov" {
			c.fail(c.cols[i], "move by way of a register like q0", "`%s` is between parts", c.in.Mnemonic)
		}
		c.in.Fn = []string{"unpack", "pack"}[i]
	}
	if c.in.Fn == "unpack" {
		c.parts(0, func(s string, col, size int) { c.in.Dst = append(c.in.Dst, c.reg(s, col, size)) })
	} else {
		c.dst(0)
	}
	if c.in.Fn == "pack" {
		c.parts(1, c.src)
	} else {
		c.in.Src = append(c.in.Src, Arg{Reg: c.reg(c.args[1], c.cols[1], 16)})
	}
}

// parts calls f with each part of 128 bits in braces, where it stands, and its size.
func (c *cell) parts(arg int, f func(s string, col, size int)) {
	s := strings.TrimSuffix(c.args[arg][1:], "}")
	n := strings.Count(s, ",") + 1
	if n != 2 && n != 4 || len(s)+2 != len(c.args[arg]) {
		c.fail(c.cols[arg], "write two of 64 bits or four of 32 in braces", "`%s` is no 128 bits", c.args[arg])
	}
	c.in.Vec = n
	pieces(s, ",", func(part string, col int) {
		if part == "" {
			c.fail(c.cols[arg]+1+col, "write a register or a constant", "a part is missing")
		}
		f(part, c.cols[arg]+1+col, 16/n)
	})
}

func (c *cell) setp() {
	c.in.Op = Setp
	c.in.Fn = c.need("eq", "ne", "lt", "le", "gt", "ge")
	c.typ(4)
	c.nargs(3, 3)
	c.in.Dst = []string{c.reg(c.args[0], c.cols[0], 1)}
	c.sources(1)
}

func (c *cell) selp() {
	c.in.Op = Select
	c.typ(4)
	c.nargs(4, 4)
	c.dst(0)
	c.src(c.args[1], c.cols[1], c.in.Size)
	c.src(c.args[2], c.cols[2], c.in.Size)
	c.in.Src = append(c.in.Src, Arg{Reg: c.reg(c.args[3], c.cols[3], 1)})
}

func (c *cell) branch() {
	c.in.Op = Branch
	c.nargs(1, 1)
	if c.in.Label = c.args[0]; !ident.MatchString(c.in.Label) {
		c.fail(c.cols[0], "name a label of this column", "`%s` is no label", c.in.Label)
	}
}

func (c *cell) exit() {
	c.in.Op = Exit
	c.nargs(0, 0)
}
