package journal

// Waking returns a function for NewReader that puts a value into woken, a channel of capacity
// one, unless it has one. It never blocks.
func Waking(woken chan<- struct{}) func() {
	return func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
}
