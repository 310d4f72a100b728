// Package stress is what stress tests of kernels on hardware need: PTX changed before it is loaded, by delays that
// widen races or by weakened synchronisation that must be noticed, and litmus tests that run on the devices themselves.
package stress
