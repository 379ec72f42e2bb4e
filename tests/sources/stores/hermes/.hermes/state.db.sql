CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, model TEXT, parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, title TEXT, cwd TEXT, input_tokens INTEGER, output_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER, reasoning_tokens INTEGER, estimated_cost_usd REAL, actual_cost_usd REAL);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, finish_reason TEXT, reasoning TEXT, compacted INTEGER NOT NULL DEFAULT 0);
CREATE INDEX idx_messages_session ON messages(session_id, timestamp);

INSERT INTO sessions (id, source, model, started_at, title, cwd, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, estimated_cost_usd) VALUES ('20260102_030405_ab12cd', 'cli', 'made-up-4', 1767323045.5, 'Weather', '/home/ann/demo', 500, 60, 200, 0, 12, 0.003);
INSERT INTO sessions (id, source, model, parent_session_id, started_at, cwd) VALUES ('20260102_030410_ef34ab', 'cli', 'made-up-4', '20260102_030405_ab12cd', 1767323050.0, '/home/ann/demo');
INSERT INTO messages (session_id, role, content, timestamp) VALUES ('20260102_030405_ab12cd', 'user', 'What is the weather?', 1767323046.25);
INSERT INTO messages (session_id, role, content, timestamp, tool_calls, finish_reason, reasoning) VALUES ('20260102_030405_ab12cd', 'assistant', 'I ask the sky.', 1767323047.0, '[{"id": "call_1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"curl sky\"}"}}]', 'tool_calls', 'There is a service.');
INSERT INTO messages (session_id, role, content, timestamp, tool_call_id, tool_name) VALUES ('20260102_030405_ab12cd', 'tool', '{"output": "", "exit_code": 6, "error": "could not resolve host"}', 1767323048.0, 'call_1', 'terminal');
INSERT INTO messages (session_id, role, content, timestamp, finish_reason) VALUES ('20260102_030405_ab12cd', 'assistant', 'The sky does not answer.', 1767323049.0, 'stop');
INSERT INTO messages (session_id, role, content, timestamp) VALUES ('20260102_030410_ef34ab', 'user', 'Look elsewhere', 1767323050.5);
INSERT INTO messages (session_id, role, content, timestamp, finish_reason) VALUES ('20260102_030410_ef34ab', 'assistant', 'It rains.', 1767323051.0, 'stop');
INSERT INTO messages (session_id, role, content, timestamp) VALUES ('20260102_030410_ef34ab', 'oracle', 'a role of a later version', 1767323051.5);
