-- Where a run that failed was when its handler raised; NULL where nothing was raised.

ALTER TABLE attempts ADD COLUMN traceback text;
