package session

// Loader returns the part that loads and unloads the session.
func (s *Session) Loader() *Loader { return s.loader }

// Callbacks returns the session's callbacks.
func (s *Session) Callbacks() *Callbacks { return s.callbacks }

// Models returns the part that carries out the session's model requests.
func (s *Session) Models() *Models { return s.models }

// Prompts returns the queue of the prompts whose turns have not ended.
func (s *Session) Prompts() *Prompts { return s.prompts }

// Participants returns the participants of the session.
func (s *Session) Participants() *Participants { return s.participants }

// Turns returns the session's turns.
func (s *Session) Turns() *Turns { return s.turns }

// Watchdog returns the part that ends turns without progress.
func (s *Session) Watchdog() *Watchdog { return s.watchdog }

// Settings returns the session's configuration.
func (s *Session) Settings() *Settings { return s.settings }

// Sender returns the part that sends messages.
func (s *Session) Sender() *Sender { return s.sender }
