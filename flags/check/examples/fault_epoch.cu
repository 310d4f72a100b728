// fault_epoch: the epoch is an argument. A graph replays the launch with the same one, and old flags pass for new ones.
#define EPOCH(a) ((a).host_epoch)
#include "mini.cuh"
