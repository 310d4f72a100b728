// correct: mini.cuh as it is.
#include "mini.cuh"
